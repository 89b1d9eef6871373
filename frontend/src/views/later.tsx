import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, asApiError } from "../api/errors";
import { t } from "../i18n";
import { Failed, Loading } from "../ui/Section";
import type { ViewProps } from "./viewProps";

/**
 * A view whose module is fetched when it is first opened: nobody waits for all views in order to see one. In a report
 * of one file everything is there already.
 */
export function later(load: () => Promise<ComponentType<ViewProps>>): ComponentType<ViewProps> {
  let View: ComponentType<ViewProps> | null = null;
  return function Later(props: ViewProps) {
    const [attempt, setAttempt] = useState(0);
    const [error, setError] = useState<ApiError | null>(null);
    const [, show] = useState(View !== null);
    useEffect(() => {
      if (View) return;
      let wanted = true;
      load().then(
        (found) => {
          View = found;
          if (wanted) show(true);
        },
        (reason: unknown) => {
          if (wanted) setError(new ApiError("module", `${t("error_view_module")} ${asApiError(reason).message}`, 0));
        },
      );
      return () => {
        wanted = false;
      };
    }, [attempt]);
    if (View) return <View {...props} />;
    const again = () => {
      setError(null);
      setAttempt(attempt + 1);
    };
    return error ? <Failed error={error} retry={again} /> : <Loading label={t("loading_view")} />;
  };
}
