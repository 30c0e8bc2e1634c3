import type { Headrace } from "./client.js";
import { answerOf, HeadraceError } from "./errors.js";
import type { components } from "./schema.js";

type Group = components["schemas"]["GroupView"];

/** The group that a consumer wants. One that is missing is created so, for which the token needs the scope admin. */
export interface GroupOptions {
  /** The tags to receive (all). */
  tags?: readonly string[];
  mode?: "queue" | "serial" | "broadcast";
  /** Where a group that is created begins: "earliest" (default), "latest", or a time. */
  from?: string;
}

/** The group, created if it is missing. Error where it has another mode or filter than the consumer wants. */
export async function ensureGroup(hr: Headrace, topic: string, name: string, { tags, mode, from }: GroupOptions): Promise<Group> {
  const params = { path: { topic, group: name } };
  const filter = tags?.length ? tags.join(" || ") : undefined;
  let group: Group;
  try {
    group = await answerOf(hr.api.GET("/v1/topics/{topic}/groups/{group}", { params }));
  } catch (missing) {
    if (!(missing instanceof HeadraceError && missing.code === "GROUP_NOT_FOUND")) throw missing;
    const body = { from: from ?? "earliest", ...(mode && { mode }), ...(filter && { filter }) };
    group = await answerOf(hr.api.PUT("/v1/topics/{topic}/groups/{group}", { params, body })).catch((error: unknown) => {
      throw error instanceof HeadraceError && error.status === 403 ? missing : error;
    });
  }
  if (mode && group.mode !== mode) throw new Error(`Group ${name} of ${topic} is ${group.mode}, not ${mode}. A group keeps its mode.`);
  if (filter && wanted(filter) !== wanted(group.filter)) {
    throw new Error(
      `Group ${name} of ${topic} has the filter "${group.filter}", this consumer wants "${filter}". To change the group's, for all of its ` +
        `consumers: hr.api.PUT("/v1/topics/{topic}/groups/{group}", { params: ${JSON.stringify(params)}, body: { filter: "${filter}" } })`,
    );
  }
  return group;
}

/** A filter in one form: the order of its tags does not matter. */
function wanted(filter: string): string {
  return filter.split("||").map((tag) => tag.trim()).sort().join();
}
