/** A project that has installed the package, in check. */

import { change, Host, setLabel, silentLogger } from "@portcullis-mesh/host";
import { runCases } from "@portcullis-mesh/host/testing";

const newHost = () =>
  new Host({ name: "installed", logger: silentLogger }).mutate("team.example.com", (request) =>
    change(request, (object) => setLabel(object, "team", request.namespace)),
  );

runCases((_, run) => run(), "cases.yaml", newHost);
