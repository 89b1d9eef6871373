import type { terms as en } from "../en/terms";
import type { Texts } from "../texts";

export const terms: Texts<typeof en> = {
  term_step:
    "Desde el final del paso anterior de la GPU hasta el final de su último trabajo: cada paso incluye la espera que lo precede.",
  term_late:
    "Cuánto llegó esta GPU después de la primera, sumado sobre las colectivas del paso. La que llega tarde hace esperar a las demás.",
  term_outlier:
    "Un paso más largo que la mediana por más de 3,5 desviaciones medianas escaladas y más de un 25 %. Se compara en la misma GPU, a partir de 8 pasos.",
  term_gap: "Un tramo en el que ningún flujo de la GPU hace nada.",
  term_gap_cause:
    "A qué se atribuye la mayor parte del hueco. Antes del lanzamiento que lo termina, el retraso es del host; después, del dispositivo.",
  term_gap_charged: "La parte del hueco que se atribuye a esta causa.",
  term_gap_evidence: "El evento del host que explica la mayor parte de la porción del hueco que le corresponde.",
  term_hidden: "Comunicación simultánea al cálculo: no cuesta nada.",
  term_last: "A cuántas colectivas entró esta GPU en último lugar, por más del error, de las que se pudieron comparar.",
  term_behind: "Con cuánto retraso respecto a la primera GPU entra esta en una colectiva, de media.",
  term_unmatched: "Colectivas de esta GPU que no se pudieron emparejar con las de las demás.",
  term_group: "Las GPU que ejecutan juntas esta colectiva.",
  term_inside: "Tiempo entre la entrada y la salida de la colectiva, como media entre sus GPU, en total.",
  term_collective_wait: "Tiempo dentro de la colectiva hasta que entra la última GPU, oculto o no.",
  term_collective_moving: "Tiempo dentro de la colectiva después de que entre la última GPU, oculto o no.",
  term_algorithm_bandwidth: "Tamaño de los datos entre el tiempo mediano sin espera, como lo cuenta nccl-tests.",
  term_bus_bandwidth:
    "El ancho de banda del algoritmo por un factor según el tipo y el número de GPU, comparable con la velocidad de los enlaces, como en nccl-tests.",
  term_heat_late: "Cuánto llegó la GPU después de la primera, sumado sobre las colectivas del paso.",
  term_heat_busy: "La parte del paso de la GPU en la que calculaba.",
  term_heat_compute: "Cuánto tiempo calculó la GPU en el paso.",
  term_heat_wait: "Cuánto esperó la GPU a otras dentro de colectivas, sin ningún cálculo al mismo tiempo.",
  term_heat_wall: "Cuánto duró el paso de la GPU.",
  term_glance_compute: "Media de las GPU: la parte de la ventana analizada en la que se ejecutaban kernels de cálculo.",
  term_glance_saving:
    "Lo que un paso podría acortarse como máximo si se arreglara el hallazgo mayor, y su parte del paso mediano. Las ganancias de varios hallazgos no se suman.",
  term_glance_findings: "Cuántos hallazgos hay de cada gravedad.",
};
