import type { Plugin } from "vite";

export function noticeOf(folder: string): string;
export function bundledNotices(): Plugin;
