import { indexParam, textParam } from "../../state/params";

/** What links keep of the view. */
export const kernelFilter = textParam("kernel");
export const kernelSort = textParam("sort", "-total_ms", { ofProfile: false });
export const kernelDevice = indexParam("gpu");
