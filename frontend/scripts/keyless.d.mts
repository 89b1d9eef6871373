import type { Plugin } from "vite";

export function readTexts(source: string, file: string): { name: string; texts: Record<string, string> };
export function keyless(spanish: string, english: string, file: string): string;
export function keylessSpanish(): Plugin;
