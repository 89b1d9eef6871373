import type { Environment, EnvironmentProblem } from "../../api/telemetry";
import type { MessageKey } from "../../i18n";

/** The facts of an environment report that most questions are about. */

type Json = unknown;

const isObject = (value: Json): value is Record<string, Json> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const at = (value: Json, ...path: string[]): Json =>
  path.reduce<Json>((found, key) => (isObject(found) ? found[key] : undefined), value);

const text = (value: Json): string | null =>
  typeof value === "string" && value ? value : typeof value === "number" ? String(value) : null;

export interface EnvironmentFact {
  label: MessageKey;
  value: string;
}

/** What is known of them, in the order in which they are shown. */
export function environmentFacts(report: Environment): EnvironmentFact[] {
  const facts: EnvironmentFact[] = [];
  const add = (label: MessageKey, value: string | null) => {
    if (value) facts.push({ label, value });
  };
  add("env_system", text(report.system));
  add("env_python", text(report.python));
  add("env_driver", text(at(report, "driver", "version")) ?? text(at(report, "driver", "error")));
  add("env_cuda", text(at(report, "driver", "cuda_version")));
  const gpus = at(report, "driver", "gpus");
  if (Array.isArray(gpus)) {
    const names = new Map<string, number>();
    for (const gpu of gpus) {
      const name = text(at(gpu, "name")) ?? "GPU";
      names.set(name, (names.get(name) ?? 0) + 1);
    }
    add("env_gpus", [...names].map(([name, n]) => `${n} × ${name}`).join(", "));
  }
  const frameworks = report.frameworks;
  if (isObject(frameworks)) {
    const list = Object.entries(frameworks).map(([name, facts_]) =>
      `${name} ${text(at(facts_, "version")) ?? ""}`.trim(),
    );
    add("env_frameworks", list.join(", "));
  }
  const libraries = report.libraries;
  if (isObject(libraries)) {
    const list = Object.entries(libraries).flatMap(([name, found]) => {
      const versions = Array.isArray(found) ? found.map((one) => text(at(one, "version"))).filter(Boolean) : [];
      return versions.length ? [`${name} ${[...new Set(versions)].join(", ")}`] : [];
    });
    add("env_libraries", list.join("; "));
  }
  add("env_container", text(report.container));
  return facts;
}

const RANK: Record<string, number> = { critical: 0, warning: 1, info: 2 };

/** Problems, the worst first; what is none is left out, what has no words is called by its code. */
export const problemsOf = ({ problems }: Environment): EnvironmentProblem[] =>
  (Array.isArray(problems) ? problems : [])
    .filter(isObject)
    .map((problem) => ({
      severity: text(problem.severity) ?? "info",
      text: text(problem.text) ?? text(problem.code) ?? "?",
      fix: Array.isArray(problem.fix) ? problem.fix.map(String) : [],
    }))
    .sort((a, b) => (RANK[a.severity] ?? 3) - (RANK[b.severity] ?? 3));

/** The whole report as text; long ones are cut, since a page must not hang on them. */
export function reportText(report: Environment, most = 60_000): string {
  const { problems: _problems, ...rest } = report;
  const whole = JSON.stringify(rest, null, 2);
  return whole.length > most ? `${whole.slice(0, most)}\n…` : whole;
}
