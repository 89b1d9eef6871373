import type { TreeNode } from "../../api/kernels";

/** The tree of scopes, ops and kernels, as lists of indices. */

/** For each node its children; the last list holds those at the root. */
export function childrenOf(nodes: readonly TreeNode[]): number[][] {
  const children: number[][] = Array.from({ length: nodes.length + 1 }, () => []);
  for (const [i, { parent }] of nodes.entries()) children[parent < 0 ? nodes.length : parent].push(i);
  return children;
}

/** From the root down to a node, itself included. */
export function pathOf(nodes: readonly TreeNode[], index: number): number[] {
  const path: number[] = [];
  for (let at = index; at >= 0 && path.length <= nodes.length; at = nodes[at].parent) path.unshift(at);
  return path;
}

/** A place of the tree as a link keeps it: the names on the way. */
export const placeOf = (nodes: readonly TreeNode[], index: number): string =>
  pathOf(nodes, index)
    .map((at) => `${nodes[at].kind[0]}${encodeURIComponent(nodes[at].name)}`)
    .join("/");

/** The node at a place; -1 (the root) for one that the tree does not have. */
export function nodeAt(nodes: readonly TreeNode[], children: readonly number[][], place: string): number {
  let at = -1;
  for (const part of place.split("/").filter(Boolean)) {
    const next = children[at < 0 ? nodes.length : at].find(
      (child) => `${nodes[child].kind[0]}${encodeURIComponent(nodes[child].name)}` === part,
    );
    if (next === undefined) return -1;
    at = next;
  }
  return at;
}

export interface Cell {
  node: number;
  depth: number;
  /** Share of the whole width. */
  left: number;
  width: number;
}

/** What lies below a node as rectangles: each as wide as its time. Those narrower than `least` are left out. */
export function icicle(
  nodes: readonly TreeNode[],
  children: readonly number[][],
  root: number,
  least: number,
  deepest: number,
): Cell[] {
  const cells: Cell[] = [];
  const below = (at: number) => children[at < 0 ? nodes.length : at];
  const whole = root < 0 ? below(-1).reduce((sum, child) => sum + nodes[child].total_ms, 0) : nodes[root].total_ms;
  if (!(whole > 0)) return cells;
  const walk = (at: number, depth: number, from: number) => {
    if (depth >= deepest) return;
    let left = from;
    for (const child of below(at)) {
      const width = nodes[child].total_ms / whole;
      if (width >= least) {
        cells.push({ node: child, depth, left, width });
        walk(child, depth + 1, left);
      }
      left += width;
    }
  };
  walk(root, 0, 0);
  return cells;
}
