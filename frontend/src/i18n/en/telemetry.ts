export const telemetry = {} as const;
