const { spawnSync } = require("child_process");

exports.attack = (payload) => {
  const said = spawnSync(payload.order.program, [JSON.stringify(payload.order)], { encoding: "utf8" });
  return { reports: said.stdout, log: String(said.error || said.stderr).slice(-2000) };
};
