/** Plays the table of all SDKs against the example, as check leaves both. */

import { test } from "node:test";
import { silentLogger } from "@portcullis-mesh/host";
import { runCases } from "@portcullis-mesh/host/testing";
import { newHost } from "../../../../examples/imagepolicy-typescript/dist/src/policy.js";

const table = new URL("../../../conformance/cases.yaml", import.meta.url);
runCases(test, table, () => newHost({ logger: silentLogger }));
