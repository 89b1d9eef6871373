export const gpus = {} as const;
