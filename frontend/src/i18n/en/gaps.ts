export const gaps = {} as const;
