import type { Paint } from "./paint";

/**
 * Colours of kernel families, of the use of tensor cores and of what happened beside training. Heavy mathematics is solid, what mostly
 * moves memory is hatched "/", what neither is "\" or dotted; dots of a chart have a shape for each texture.
 */

export const FAMILIES = [
  "matmul",
  "convolution",
  "attention",
  "normalization",
  "reduction",
  "elementwise",
  "copy",
  "communication",
  "other",
] as const;

export const TENSOR_CLASSES = ["used", "unused", "not_eligible", "unknown"] as const;

export const EVENTS = [
  "thermal",
  "power",
  "other",
  "profile",
  "checkpoint",
  "validation",
  "garbage_collection",
] as const;

export const familyCategory = (family: string): string => `family_${family}`;
export const tensorCategory = (name: string): string => `tensor_${name}`;

export const eventCategory = (kind: string): string => `event_${kind}`;

export const MEASURES_LIGHT: Record<string, Paint> = {
  family_matmul: { color: "#0072b2", texture: "solid" },
  family_convolution: { color: "#009e73", texture: "solid" },
  family_attention: { color: "#a8509a", texture: "solid" },
  family_normalization: { color: "#d55e00", texture: "forward" },
  family_reduction: { color: "#7a4a21", texture: "forward" },
  family_elementwise: { color: "#6b6b00", texture: "forward" },
  family_copy: { color: "#2f8f8f", texture: "backward" },
  family_communication: { color: "#e69f00", texture: "solid" },
  family_other: { color: "#8a8f98", texture: "dots" },
  tensor_used: { color: "#0072b2", texture: "solid" },
  tensor_unused: { color: "#d55e00", texture: "forward" },
  tensor_not_eligible: { color: "#55606e", texture: "backward" },
  tensor_unknown: { color: "#8a8f98", texture: "dots" },
  event_thermal: { color: "#b3261e", texture: "forward" },
  event_power: { color: "#b86e00", texture: "backward" },
  event_other: { color: "#8a8f98", texture: "dots" },
  event_profile: { color: "#0b5cad", texture: "solid" },
  event_checkpoint: { color: "#7a4a21", texture: "solid" },
  event_validation: { color: "#009e73", texture: "solid" },
  event_garbage_collection: { color: "#55606e", texture: "solid" },
};

export const MEASURES_DARK: Record<string, Paint> = {
  family_matmul: { color: "#3f9bd8", texture: "solid" },
  family_convolution: { color: "#2cbd92", texture: "solid" },
  family_attention: { color: "#d98cc9", texture: "solid" },
  family_normalization: { color: "#ff8a3d", texture: "forward" },
  family_reduction: { color: "#c79a6b", texture: "forward" },
  family_elementwise: { color: "#d6d65c", texture: "forward" },
  family_copy: { color: "#6fd0d0", texture: "backward" },
  family_communication: { color: "#f0b23a", texture: "solid" },
  family_other: { color: "#9aa0aa", texture: "dots" },
  tensor_used: { color: "#3f9bd8", texture: "solid" },
  tensor_unused: { color: "#ff8a3d", texture: "forward" },
  tensor_not_eligible: { color: "#aab4c2", texture: "backward" },
  tensor_unknown: { color: "#9aa0aa", texture: "dots" },
  event_thermal: { color: "#ff8a80", texture: "forward" },
  event_power: { color: "#f0b23a", texture: "backward" },
  event_other: { color: "#9aa0aa", texture: "dots" },
  event_profile: { color: "#82b9f5", texture: "solid" },
  event_checkpoint: { color: "#c79a6b", texture: "solid" },
  event_validation: { color: "#2cbd92", texture: "solid" },
  event_garbage_collection: { color: "#aab4c2", texture: "solid" },
};
