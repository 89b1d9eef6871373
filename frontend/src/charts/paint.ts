/** How a surface is filled: its colour, and the texture that tells it apart without colour. */
export type Texture = "solid" | "forward" | "backward" | "dots";

export interface Paint {
  color: string;
  texture: Texture;
}
