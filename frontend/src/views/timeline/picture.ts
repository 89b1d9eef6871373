import type { TimelineMeta } from "../../api/types";
import { categoryFill, fitText } from "../../charts/canvas";
import { AXIS_HEIGHT, STEPS_HEIGHT } from "../../charts/draw";
import { savePng } from "../../charts/png";
import type { Row } from "../../charts/rows";
import { themeOf } from "../../charts/theme";
import { formatRange } from "../../format";
import { t, tId } from "../../i18n";
import { dark } from "../../state/host";
import { PS_PER_MS } from "../../state/timelineView";
import type { Shown } from "./cursor";

const NAMES = 150;

interface Drawn {
  axis: HTMLCanvasElement;
  lanes: HTMLCanvasElement;
  meta: TimelineMeta;
  /** The categories in the picture, for its legend. */
  present: readonly string[];
  streamName: (row: Row) => string;
}

/** Saves what is on the screen as one picture, with the names of its rows. */
export function savePicture({ rows, range, width, height, scrollTop }: Shown, drawn: Drawn): void {
  const theme = themeOf(dark.peek());
  const top = AXIS_HEIGHT + STEPS_HEIGHT;
  savePng({
    name: "timeline",
    title: `${t("timeline_title")} · ${formatRange(range.start / PS_PER_MS, range.end / PS_PER_MS)}`,
    width: NAMES + width,
    height: top + height,
    theme,
    legend: drawn.present.map((category) => ({
      fill: (context) => categoryFill(context, category, theme),
      label: tId("category", category),
    })),
    draw: ({ context }) => {
      context.drawImage(drawn.axis, NAMES, 0, width, top);
      context.drawImage(drawn.lanes, NAMES, top, width, height);
      for (const row of rows) {
        const y = row.top - scrollTop;
        if (y < 0 || y + row.height > height) continue;
        const lane = drawn.meta.lanes[row.lanes[0]];
        const name =
          row.kind === "host" ? row.host : row.kind === "stream" ? `   ${drawn.streamName(row)}` : lane.label;
        context.fillStyle = row.kind === "stream" ? theme.muted : theme.text;
        context.fillText(fitText(context, name, NAMES - 8), 0, top + y + row.height / 2);
      }
    },
  });
}
