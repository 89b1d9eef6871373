import { choiceParam, indexParam, textParam } from "../../state/params";

/** What links keep of the view. */
export const kernelFilter = textParam("kernel");
export const kernelSort = textParam("sort", "-total_ms", { ofProfile: false });
export const kernelDevice = indexParam("gpu");
/** One row a kernel and launch shape, or one for each GPU. */
export const kernelBy = choiceParam("kernel_by", ["kernel", "gpu"], { ofProfile: false });
/** Id of the row whose staircase is shown. */
export const kernelChosen = indexParam("kernel_id");
/** Place in the tree whose part is shown; null: all. */
export const treeAt = textParam("op");
export const fusionSort = textParam("fusion_sort", "-saving", { ofProfile: false });
