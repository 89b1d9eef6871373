import type { Diagnosis, ProfileId } from "../api/types";

/** What every view is given: the diagnosis of the shown profile, and the profile's name. */
export interface ViewProps {
  result: Diagnosis;
  profile: ProfileId;
}
