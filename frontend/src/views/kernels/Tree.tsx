import { useMemo } from "preact/hooks";
import { fetchTree, type TreeAnswer, type TreeNode } from "../../api/kernels";
import type { ProfileId } from "../../api/types";
import { categoryFill, fitText } from "../../charts/canvas";
import { familyCategory } from "../../charts/families";
import { type Mark, Plot, type Scene } from "../../charts/Plot";
import { formatInt, formatMeasured, formatPercent, fullText, shorten } from "../../format";
import { lang, t, tId } from "../../i18n";
import { textParam } from "../../state/params";
import { Remote } from "../../state/remote";
import { useLoad } from "../../state/useLoad";
import { type Column, DataTable, titleOf } from "../../ui/DataTable";
import { LoadedView } from "../../ui/LoadedView";
import { Legend } from "../../ui/Swatch";
import { kernelDevice, treeAt } from "./state";
import { type Cell, childrenOf, icicle, nodeAt, pathOf, placeOf } from "./tree";

const tree = new Remote<TreeAnswer>();
const treeSort = textParam("op_sort", "-total", { ofProfile: false });

const ROW = 24;
const DEEPEST = 12;
const NARROWEST = 0.0008;

export const nodeName = (node: TreeNode): string => (node.name === "" ? t("tree_no_op") : node.name);

interface CellMark extends Mark {
  node: number;
}

const describe = (node: TreeNode): string =>
  [
    `${t(`tree_${node.kind}`)}: ${shorten(nodeName(node), 140)}`,
    `${t("kernel_total")}: ${formatMeasured(node.total_ms)} (${formatPercent(node.share)}) · ${t("kernel_calls")}: ${formatInt(node.calls)}`,
    `${t("occupancy")}: ${formatPercent(node.occupancy)}`,
    ...(node.family ? [tId("category", familyCategory(node.family))] : []),
  ].join("\n");

function draw({ context, width, theme }: Scene, nodes: readonly TreeNode[], cells: readonly Cell[]): CellMark[] {
  return cells.map(({ node: index, depth, left, width: share }) => {
    const node = nodes[index];
    const [x, y] = [left * width, depth * ROW];
    const size = share * width;
    const gap = size > 3 ? 1 : 0;
    context.fillStyle = node.family ? categoryFill(context, familyCategory(node.family), theme) : theme.band;
    context.fillRect(x, y, Math.max(size - gap, 0.5), ROW - 2);
    if (size > 34) {
      const name = fitText(context, shorten(nodeName(node), 90), size - 14);
      if (name) {
        if (node.family) {
          context.fillStyle = theme.surface;
          context.fillRect(x + 4, y + 3, context.measureText(name).width + 6, ROW - 8);
        }
        context.fillStyle = theme.text;
        context.fillText(name, x + 7, y + (ROW - 2) / 2);
      }
    }
    return { x, y, width: size, height: ROW - 2, text: describe(node), node: index };
  });
}

interface PartProps {
  answer: TreeAnswer;
  onKernel: (name: string) => void;
}

function Part({ answer, onKernel }: PartProps) {
  const { nodes } = answer;
  const children = useMemo(() => childrenOf(nodes), [nodes]);
  const at = nodeAt(nodes, children, treeAt.value);
  const cells = useMemo(() => icicle(nodes, children, at, NARROWEST, DEEPEST), [nodes, children, at]);
  if (!nodes.length) return <p class="state">{t("kernels_none")}</p>;
  const below = children[at < 0 ? nodes.length : at];
  const whole = at < 0 ? answer.total_ms : nodes[at].total_ms;
  const choose = (index: number) => {
    if (children[index].length) treeAt.value = placeOf(nodes, index);
    else onKernel(nodes[index].name);
  };
  const list = below
    .slice(0, 3)
    .map((child) => `${shorten(nodeName(nodes[child]), 60)} ${formatPercent(nodes[child].total_ms / whole)}`)
    .join(", ");
  const sentence = t("tree_sentence", {
    where: at < 0 ? t("tree_all") : shorten(nodeName(nodes[at]), 60),
    ms: formatMeasured(whole),
    list,
  });
  const families = [...new Set(cells.flatMap(({ node }) => nodes[node].family ?? []))].map(familyCategory);
  const columns: Column<number>[] = [
    {
      key: "name",
      label: t("tree_name"),
      value: (i) => nodeName(nodes[i]),
      cell: (i) => (
        <span class={nodes[i].kind === "kernel" ? "kernel-name" : undefined}>{shorten(nodeName(nodes[i]), 60)}</span>
      ),
      title: (i) => titleOf(nodes[i].name),
    },
    { key: "kind", label: t("tree_kind"), value: (i) => t(`tree_${nodes[i].kind}`), csv: (i) => nodes[i].kind },
    {
      key: "total",
      label: t("kernel_total"),
      hint: t("kernel_total_hint"),
      csvLabel: "total_ms",
      number: true,
      value: (i) => nodes[i].total_ms,
      cell: (i) => formatMeasured(nodes[i].total_ms),
    },
    {
      key: "share",
      label: t("kernel_share"),
      hint: t("tree_share_hint"),
      number: true,
      value: (i) => nodes[i].share,
      cell: (i) => formatPercent(nodes[i].share),
    },
    {
      key: "calls",
      label: t("kernel_calls"),
      hint: t("kernel_calls_hint"),
      number: true,
      value: (i) => nodes[i].calls,
      cell: (i) => formatInt(nodes[i].calls),
    },
    {
      key: "occupancy",
      label: t("occupancy"),
      hint: t("occupancy_hint"),
      number: true,
      value: (i) => nodes[i].occupancy,
      cell: (i) => formatPercent(nodes[i].occupancy),
    },
    {
      key: "achieved",
      label: t("kernel_achieved"),
      hint: t("kernel_achieved_hint"),
      number: true,
      value: (i) => nodes[i].achieved_occupancy,
      cell: (i) => formatPercent(nodes[i].achieved_occupancy),
    },
    {
      key: "sm_share",
      label: t("kernel_sm_share"),
      hint: t("kernel_sm_share_hint"),
      number: true,
      value: (i) => nodes[i].sm_share,
      cell: (i) => formatPercent(nodes[i].sm_share),
    },
  ];
  return (
    <>
      <nav class="crumbs" aria-label={t("tree_path")}>
        <button
          type="button"
          class="quiet"
          aria-current={at < 0 ? "page" : undefined}
          onClick={() => {
            treeAt.value = "";
          }}
        >
          {t("tree_all")}
        </button>
        {pathOf(nodes, at).map((index) => (
          <button
            type="button"
            class="quiet"
            key={index}
            title={fullText(nodeName(nodes[index]))}
            aria-current={index === at ? "page" : undefined}
            onClick={() => {
              treeAt.value = placeOf(nodes, index);
            }}
          >
            <span aria-hidden="true">/</span> {shorten(nodeName(nodes[index]), 40)}
          </button>
        ))}
      </nav>
      {cells.length ? (
        <Plot<CellMark>
          name="kernel-tree"
          title={t("tree_picture")}
          summary={sentence}
          height={ROW * (1 + Math.max(...cells.map(({ depth }) => depth)))}
          depends={[cells, lang.value]}
          draw={(scene) => draw(scene, nodes, cells)}
          onChoose={({ node }) => choose(node)}
          categories={families}
          legend={<Legend categories={families} note={t("tree_note")} />}
        />
      ) : null}
      <p class="sentence">{sentence}</p>
      {below.length ? (
        <DataTable
          name="kernel-tree"
          label={t("tree_title")}
          rows={below}
          columns={columns}
          order={treeSort}
          note={answer.truncated ? t("tree_truncated") : undefined}
          onChoose={choose}
          tallest={360}
          rowKey={(i) => String(i)}
        />
      ) : null}
    </>
  );
}

/** Kernel time by scope, op and kernel: a picture to walk into, and what is in the part that is shown. */
export function Tree({ profile, onKernel }: { profile: ProfileId; onKernel: (name: string) => void }) {
  const device = kernelDevice.value;
  const state = useLoad(tree, profile, String(device), (options) => fetchTree(profile, device, options));
  return (
    <LoadedView state={state} label={t("loading_kernels")}>
      {(answer) => <Part answer={answer} onKernel={onKernel} />}
    </LoadedView>
  );
}
