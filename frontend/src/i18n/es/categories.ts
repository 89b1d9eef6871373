import type { categories as en } from "../en/categories";
import type { Texts } from "../texts";

export const categories: Texts<typeof en> = {
  category_compute: "Cálculo",
  category_communication: "Comunicación",
  category_transfer: "Copias",
  category_idle: "Inactiva",
  category_input: "Inactiva: espera datos de entrada",
  category_launch: "Inactiva: espera lanzamientos",
  category_sync: "Inactiva: el host la esperaba",
  category_compile: "Inactiva: compilación",
  category_checkpoint: "Inactiva: guardado",
  category_host_other: "Inactiva: otro trabajo del host",
  category_allocator: "Inactiva: reserva de memoria de GPU",
  category_dependency: "Inactiva: espera a otro flujo",
  category_peer: "Inactiva: espera a otra GPU",
  category_kernel_gap: "Inactiva: entre kernels en cola",
  category_queued: "Inactiva: lanzado, sin empezar",
  category_no_evidence: "Inactiva: sin causa conocida",
  category_hint_compute: "Se ejecutaban kernels que calculan, hubiera o no algo más al mismo tiempo.",
  category_hint_communication:
    "Se ejecutaban colectivas (NCCL y similares) o copias entre GPU sin ningún cálculo al mismo tiempo. Incluye la espera a GPU más lentas dentro de una colectiva.",
  category_hint_transfer:
    "Se ejecutaban copias desde el host, hacia el host o dentro de la GPU, y nada más al mismo tiempo.",
  category_hint_idle: "Nada se ejecutaba en la GPU: la suma del tiempo inactivo de todas las causas.",
  category_hint_input:
    "La GPU no tenía trabajo porque el host no tenía listo ningún lote: leer o preparar los datos era demasiado lento.",
  category_hint_launch:
    "La GPU no tenía trabajo porque el host aún preparaba o emitía el lanzamiento siguiente: muchos kernels cortos, o Python lento.",
  category_hint_sync:
    "El host había esperado a que la GPU terminara todo y solo entonces lanzó más: un valor leído, una sincronización.",
  category_hint_compile: "El host trazaba, compilaba o ajustaba una función antes de poder lanzarla.",
  category_hint_checkpoint: "El host guardaba los pesos o escribía resúmenes antes de seguir.",
  category_hint_host_other: "El host llegó tarde por otro motivo; la línea de tiempo dice qué hacía.",
  category_hint_allocator:
    "El host estaba dentro del asignador de memoria del controlador (cudaMalloc, cudaFree y similares), que un asignador con caché evita dentro de los pasos.",
  category_hint_dependency:
    "El trabajo estaba lanzado y un evento de otro flujo de la misma GPU terminó justo antes: el relevo tarda microsegundos.",
  category_hint_peer: "El trabajo estaba lanzado, pero tuvo que esperar a otra GPU, fuera de una colectiva.",
  category_hint_kernel_gap:
    "La pausa propia de la GPU, de uno o dos microsegundos, antes de un kernel que ya estaba en cola. Si son miles, conviene fundir kernels.",
  category_hint_queued:
    "El trabajo estaba lanzado y la GPU vacía, pero no empezó: nada en el perfil lo retenía, así que quizá otro proceso ocupaba la GPU.",
  category_hint_no_evidence: "Nada se ejecutaba, y nada en el perfil muestra por qué.",
  category_communication_wait: "Espera en colectivas",
  category_communication_moving: "Datos en movimiento en colectivas",
  category_communication_unsplit: "Comunicación sin desglosar",
  category_hint_communication_wait:
    "La GPU estaba dentro de una colectiva esperando a que entrara la última GPU, sin ningún cálculo al mismo tiempo.",
  category_hint_communication_moving:
    "Todas las GPU estaban dentro de la colectiva y los datos se movían, sin ningún cálculo al mismo tiempo.",
  category_hint_communication_unsplit:
    "Comunicación que ningún cálculo oculta y en la que no se distingue la espera del movimiento de datos: la colectiva no se pudo emparejar entre las GPU.",
};
