import { describe, expect, it } from "vitest";
import { lang } from "../src/i18n";
import { rowName } from "../src/views/timeline/streams";

lang.value = "en";

describe("the rows below a GPU", () => {
  it("are its streams and then the threads that launch", () => {
    const answer = {
      streams: [{ name: "Stream #1", events: 1 }],
      events: { stream: [], start_ps: [], end_ps: [], category: [], name: [] },
      names: [],
      launches: { threads: ["python"], names: [], thread: [], start_ps: [], end_ps: [], name: [] },
      count: 0,
      truncated: false,
    };
    expect([0, 1, 2].map((row) => rowName(answer, row))).toEqual(["Stream #1", "Launches: python", ""]);
  });
});
