import type { Signal } from "@preact/signals";
import type { ProfileId } from "../api/types";
import { type Codec, param } from "./params";

const codec: Codec<ProfileId | null> = {
  parse: (text) => {
    const parts = text.split("~");
    if (parts.length !== 2 || !parts[1]) return undefined;
    const [run, session] = parts.map(decodeURIComponent);
    return { run, session };
  },
  format: (profile) => (profile ? [profile.run, profile.session].map(encode).join("~") : ""),
};

const encode = (text: string): string => encodeURIComponent(text).replaceAll("~", "%7E");

/** A part of what links keep that is itself a profile. */
export const profileParam = (key: string, options?: { ofProfile?: boolean }): Signal<ProfileId | null> =>
  param<ProfileId | null>(key, null, codec, options);
