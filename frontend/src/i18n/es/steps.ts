import type { steps as en } from "../en/steps";
import type { Texts } from "../texts";

export const steps: Texts<typeof en> = {
  steps_lead: "Cada paso de cada GPU según lo que lo llenó. La espera que precede a un paso le pertenece.",
  steps_step: "Paso",
  steps_wall: "Duración",
  steps_late: "Retraso",
  steps_outlier: "atípico",
  steps_no_outlier: "ninguno",
  steps_several: "{first} y los siguientes, {n} en total",
  steps_table: "Cifras por paso",
  steps_hint: "Pulse un paso para verlo en la línea de tiempo.",
  steps_summary: "{n} pasos, mediana {median}, el más largo {longest}, atípicos: {slow}.",
  steps_gpu_none: "Esta GPU no tiene ningún paso completo.",
  steps_count: "{n} pasos completos, mediana {median}.",
  steps_slow: "Lentos: {list}.",
  steps_inferred_confidence:
    "El perfil no marca los pasos; estos se hallaron por cómo se repite el trabajo, igual kernel a kernel en un {share}.",
  steps_per_column: "Cada columna representa {n} pasos.",
  steps_missing:
    "El perfil no contiene ningún paso completo, así que no se puede comparar paso a paso. Los hallazgos dicen cómo marcar los pasos.",
};
