import type { Lane } from "../api/types";

/** Where on the timeline what is drawn: GPUs, hosts that are folded to one row, and streams of a GPU. */

export interface Row {
  key: string;
  kind: "host" | "gpu" | "stream";
  top: number;
  height: number;
  host: string;
  /** Places of lanes in the list of lanes: one for a GPU, all of it for a folded host, none for an unfolded one. */
  lanes: number[];
  /** A host: whether its GPUs are hidden. A GPU: whether its streams are shown. */
  open: boolean;
  /** The place of the stream in its GPU's list. */
  stream?: number;
}

export interface Layout {
  rows: Row[];
  total: number;
}

const HOST_HEIGHT = 24;
const STREAM_HEIGHT = 14;
/** With more GPUs than this, hosts are folded until they are opened. */
export const MANY_LANES = 64;

/** Height of a lane and distance between two, by how many there are. */
export function laneSize(lanes: number): { height: number; pitch: number } {
  if (lanes <= 8) return { height: 36, pitch: 44 };
  if (lanes <= 32) return { height: 22, pitch: 27 };
  return { height: 16, pitch: 20 };
}

/**
 * @param toggled hosts that are not as they are at first.
 * @param streams by lane id how many streams of it are shown.
 */
export function layoutRows(
  lanes: readonly Lane[],
  toggled: ReadonlySet<string>,
  streams: ReadonlyMap<number, number>,
): Layout {
  const hosts: string[] = [];
  const byHost = new Map<string, number[]>();
  for (const [i, { host }] of lanes.entries()) {
    const found = byHost.get(host);
    if (found) found.push(i);
    else {
      hosts.push(host);
      byHost.set(host, [i]);
    }
  }
  const { height, pitch } = laneSize(lanes.length);
  const rows: Row[] = [];
  let top = 0;
  for (const host of hosts) {
    const mine = byHost.get(host) ?? [];
    const grouped = hosts.length > 1 && mine.length > 1;
    const folded = grouped && toggled.has(host) !== lanes.length > MANY_LANES;
    // A host with one GPU needs no row of its own: the GPU's name has the host's.
    if (grouped) {
      const size = folded ? height : HOST_HEIGHT;
      rows.push({
        key: `host|${host}`,
        kind: "host",
        top,
        height: size,
        host,
        lanes: folded ? mine : [],
        open: !folded,
      });
      top += folded ? pitch : HOST_HEIGHT + 2;
    }
    if (folded) continue;
    for (const lane of mine) {
      const count = streams.get(lanes[lane].id);
      rows.push({ key: `gpu|${lane}`, kind: "gpu", top, height, host, lanes: [lane], open: count !== undefined });
      top += count ? height + 2 : pitch;
      for (let stream = 0; stream < (count ?? 0); stream++) {
        const last = stream + 1 === count;
        rows.push({
          key: `stream|${lane}|${stream}`,
          kind: "stream",
          top,
          height: STREAM_HEIGHT,
          host,
          lanes: [lane],
          open: false,
          stream,
        });
        top += STREAM_HEIGHT + (last ? pitch - height : 2);
      }
    }
  }
  return { rows, total: Math.max(top, 1) };
}

/** The rows that show between two heights: [first, last). */
export function rowsBetween(rows: readonly Row[], from: number, to: number): [number, number] {
  let first = 0;
  while (first < rows.length && rows[first].top + rows[first].height <= from) first++;
  let last = first;
  while (last < rows.length && rows[last].top < to) last++;
  return [first, last];
}

/** The row at a height, -1 between two. */
export function rowAt(rows: readonly Row[], y: number): number {
  return rows.findIndex(({ top, height }) => y >= top && y < top + height);
}

/** The row that shows a lane: its own, or that of its folded host. */
export const rowOfLane = (rows: readonly Row[], lane: number): number =>
  rows.findIndex(({ kind, lanes }) => kind !== "stream" && lanes.includes(lane));
