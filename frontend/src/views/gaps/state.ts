import { CAUSES } from "../../charts/palette";
import { choiceParam, indexParam, textParam } from "../../state/params";

/** Which gaps are listed: of one cause, of one GPU. */
export const gapCause = choiceParam("gap_cause", ["", ...CAUSES]);
export const gapLane = indexParam("gap_gpu");
/** The gap whose story is told. */
export const gapChosen = textParam("gap");
