import type { Plugin } from "vite";

export function versionedModules(): Plugin;
export function withVersion(code: string, version: string): string;
