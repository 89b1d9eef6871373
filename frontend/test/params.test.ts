import { effect } from "@preact/signals";
import { describe, expect, it } from "vitest";
import {
  applyParams,
  choiceParam,
  indexParam,
  listParam,
  param,
  paramState,
  resetProfileParams,
  textParam,
} from "../src/state/params";
import { formatHash, parseHash } from "../src/state/url";

const word = textParam("t_word", "all");
const index = indexParam("t_index");
const choice = choiceParam("t_choice", ["time", "count"], { ofProfile: false });
const list = listParam("t_list");
const picky = param("t_picky", 1, {
  parse: (text) => {
    if (text === "boom") throw new Error("no");
    return Number(text) || undefined;
  },
  format: String,
});

const own = () => Object.fromEntries(Object.entries(paramState()).filter(([key]) => key.startsWith("t_")));

describe("what links keep", () => {
  it("is only what differs from the beginning", () => {
    applyParams({});
    expect(own()).toEqual({});
    word.value = "";
    index.value = 0;
    choice.value = "count";
    list.value = ["a,b", "ñ &="];
    expect(own()).toEqual({
      t_word: "",
      t_index: "0",
      t_choice: "count",
      t_list: "a%2Cb,%C3%B1%20%26%3D",
    });
  });

  it("comes back from the address as it was", () => {
    const hash = formatHash("", paramState());
    applyParams({});
    expect(own()).toEqual({});
    applyParams(parseHash(hash));
    expect([word.value, index.value, choice.value]).toEqual(["", 0, "count"]);
    expect(list.value).toEqual(["a,b", "ñ &="]);
  });

  it("takes no nonsense", () => {
    applyParams({ t_index: "-1", t_choice: "constructor", t_list: "%E0%A4%A", t_picky: "boom" });
    expect([index.value, choice.value, picky.value]).toEqual([null, "time", 1]);
    expect(list.value).toEqual([]);
  });

  it("keeps the identity of what stays the same", () => {
    applyParams({ t_list: "a,b" });
    const before = list.value;
    applyParams({ t_list: "a,b", t_word: "x" });
    expect(list.value).toBe(before);
  });

  it("belongs to the profile unless it says otherwise", () => {
    word.value = "x";
    choice.value = "count";
    resetProfileParams();
    expect([word.value, choice.value]).toEqual(["all", "count"]);
  });

  it("waits for parts that are declared later, and is written on by what they become", () => {
    applyParams({ t_late: "5", t_later: "x" });
    expect(own()).toEqual({ t_late: "5", t_later: "x" });
    const seen: unknown[] = [];
    const stop = effect(() => void seen.push(own()));
    const late = indexParam("t_late");
    expect(late.value).toBe(5);
    late.value = 6;
    expect(seen.at(-1)).toEqual({ t_late: "6", t_later: "x" });
    stop();
    applyParams({});
    expect([late.value, own()]).toEqual([null, {}]);
  });

  it("of another profile is not kept for parts that are declared later", () => {
    applyParams({ t_of_profile: "5", t_broken: "%" });
    expect(listParam("t_broken").value).toEqual([]);
    resetProfileParams();
    expect(indexParam("t_of_profile").value).toBe(null);
  });

  it("has each name once", () => {
    expect(() => textParam("t_word")).toThrow(/t_word/);
  });
});
