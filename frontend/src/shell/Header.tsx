import { useState } from "preact/hooks";
import { cleanText, formatBytes, formatDuration, formatInt, fullText, shorten } from "../format";
import { isLang, LANGS, lang, plural, t, tId } from "../i18n";
import { saveSetting, shareUrl } from "../state/host";
import { diagnosis, reload, selectedInfo, selectProfile, sessions, shareHash } from "../state/store";
import { copyText } from "../ui/copy";
import { Icon } from "../ui/Icon";
import { Term } from "../ui/Term";
import { SessionPicker } from "./SessionPicker";

function LanguageSwitch() {
  return (
    <label class="language">
      <span class="hidden">{t("language")}</span>
      <select
        value={lang.value}
        onChange={(event) => {
          const value = event.currentTarget.value;
          if (!isLang(value)) return;
          lang.value = value;
          saveSetting("lang", value);
        }}
      >
        {LANGS.map((code) => (
          <option key={code} value={code} lang={code}>
            {tId("language", code)}
          </option>
        ))}
      </select>
    </label>
  );
}

function CopyLink() {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    setCopied(await copyText(shareUrl(shareHash.peek())));
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <button type="button" class="quiet" onClick={copy}>
      <Icon name="link" />
      <span aria-live="polite">{copied ? t("copied") : t("copy_link")}</span>
    </button>
  );
}

type Fact = [name: string, value: string, hint?: string];

function FactList({ facts }: { facts: readonly Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value, hint]) => (
        <div key={name}>
          <dt>{hint ? <Term text={hint}>{name}</Term> : name}</dt>
          <dd>{value || "–"}</dd>
        </div>
      ))}
    </dl>
  );
}

/** What the profile is: where it comes from, how much of it there is. */
function Facts() {
  const info = selectedInfo.value;
  const result = diagnosis.value.data;
  if (!info) return null;
  const hosts = result?.profile.hosts.length ? result.profile.hosts : info.hosts;
  const facts: Fact[] = [
    [t("fact_format"), `${tId("format", info.format)} · ${formatBytes(info.size_bytes)}`],
    [
      t("fact_hosts"),
      hosts.length > 3 ? plural("hosts", hosts.length) : hosts.map((host) => shorten(host, 40)).join(", "),
      hosts.length > 3 ? fullText(hosts.slice(0, 200).join(", ")) : undefined,
    ],
  ];
  if (result) {
    const names = [...new Set(result.devices.map((device) => device.name).filter((name): name is string => !!name))];
    const gpus =
      names.length === 1
        ? `${formatInt(result.devices.length)} × ${shorten(names[0], 40)}`
        : formatInt(result.devices.length);
    facts.push([t("fact_gpus"), gpus, names.length > 1 ? names.map(cleanText).join(", ") : undefined]);
    if (info.format === "telemetry") {
      // Neither steps nor a window: it tells of the whole training.
      facts.push([t("fact_recorded"), formatDuration(result.profile.recorded_ms)]);
      return <FactList facts={facts} />;
    }
    const { count, source, median_ms } = result.steps;
    const steps = count
      ? `${formatInt(count)} · ${t("median", { value: formatDuration(median_ms) })}`
      : t("steps_none");
    const inferred = count > 0 && source === "inferred";
    facts.push([
      t("fact_steps"),
      inferred ? `${steps} · ${t("steps_inferred")}` : steps,
      inferred ? t("steps_inferred_hint") : undefined,
    ]);
    const { window_ms, recorded_ms } = result.profile;
    const params = { window: formatDuration(window_ms), recorded: formatDuration(recorded_ms) };
    const window = recorded_ms === null ? params.window : t(window_ms === null ? "window_none" : "window_of", params);
    facts.push([t("fact_window"), window, t("window_hint")]);
  }
  return <FactList facts={facts} />;
}

/** The offer to read sessions that may be one job together. */
function Related() {
  const info = selectedInfo.value;
  const related = info?.related;
  if (!info || !related) return null;
  return (
    <p class="state notice">
      <span>
        {t("related_offer", {
          n: formatInt(related.sessions.length),
          hosts: shorten(related.hosts.join(", "), 120),
          apart: formatDuration(related.apart_s * 1000),
        })}{" "}
        <button type="button" onClick={() => selectProfile({ run: info.run, session: related.session })}>
          {t("related_read")}
        </button>
      </span>
    </p>
  );
}

export function Header() {
  const busy = sessions.value.status === "loading" || sessions.value.data?.scanning;
  return (
    <header class="header">
      <div class="header-row">
        <h1>GPU Doctor</h1>
        <SessionPicker />
        <div class="header-tools">
          <button type="button" class="quiet" onClick={() => void reload()} aria-busy={!!busy}>
            <Icon name="refresh" />
            {t("refresh")}
          </button>
          <CopyLink />
          <LanguageSwitch />
        </div>
      </div>
      <Facts />
      <Related />
    </header>
  );
}
