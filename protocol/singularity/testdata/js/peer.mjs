// A caller of the contract, with the official NATS client: sends the requests that it is told to on stdin, one JSON
// line each, and prints what comes back.
import { createInterface } from "node:readline";
import { connect, headers } from "@nats-io/transport-node";

const nc = await connect({ servers: process.env.NATS_URL, token: process.env.NATS_TOKEN });
const print = (value) => process.stdout.write(JSON.stringify(value) + "\n");

async function many(subject, count) {
  const answers = Array.from({ length: count }, (_, n) =>
    nc.request(subject, JSON.stringify({ n }), { timeout: 30000 }).then((m) => m.json().data.n === n));
  return (await Promise.all(answers)).filter(Boolean).length;
}

async function streamed(subject, body) {
  const events = [];
  const box = nc.subscribe("js.events");
  const taken = (async () => { for await (const m of box) events.push(m.json()); })();
  const h = headers();
  h.set("Toolpost-Stream", "js.events");
  const reply = (await nc.request(subject, body, { headers: h, timeout: 30000 })).json();
  await nc.flush();
  await box.drain();
  await taken;
  return { reply, events };
}

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  if (job.many) print(await many(job.subject, job.many));
  else if (job.stream) print(await streamed(job.subject, job.body));
  else if (job.all) {
    const found = [];
    for await (const m of await nc.requestMany(job.subject, "", { strategy: "timer", maxWait: 500 })) found.push(m.json());
    print(found);
  } else print((await nc.request(job.subject, job.body, { timeout: 30000 })).json());
}
await nc.close();
