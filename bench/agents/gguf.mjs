// Completes prompts with a GGUF file through node-llama-cpp: one JSON object a line on stdin, one on stdout.
//
//     node gguf.mjs NODE_MODULES FILE THREADS CONTEXT KEPT
//
// In: {prompt, grammar, most, temperature, seed}. Out: {text, read, cached, written}, the last three in tokens. The last KEPT prompts stay in
// the context; what a prompt shares with one of them is not read again. It takes the place of that one where most
// of it is shared, else of the one that was used longest ago. At temperature 0 decoding is greedy.
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [modules, file, threads, contextSize, kept] = process.argv.slice(2);
const { getLlama, LlamaCompletion, LlamaGrammar } = await import(
  pathToFileURL(join(modules, "node-llama-cpp", "dist", "index.js")).href
);
const MOST = 0.5;
const llama = await getLlama({ gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error" });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({
  contextSize: Number(contextSize),
  sequences: Number(kept),
  threads: Number(threads),
});
// The one that was used longest ago stands first.
const places = Array.from({ length: Number(kept) }, () => {
  const sequence = context.getSequence();
  return { sequence, completion: new LlamaCompletion({ contextSequence: sequence }) };
});
const grammars = new Map();

function shared(tokens, held) {
  let count = 0;
  while (count < tokens.length && count < held.length && tokens[count] === held[count]) count += 1;
  return count;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { prompt, grammar, most, temperature, seed } = JSON.parse(line);
  if (!grammars.has(grammar)) grammars.set(grammar, new LlamaGrammar(llama, { grammar }));
  const tokens = model.tokenize(prompt, true);
  const counts = places.map(({ sequence }) => shared(tokens, sequence.contextTokens));
  const best = counts.indexOf(Math.max(...counts));
  const chosen = counts[best] > MOST * tokens.length ? best : 0;
  const [place] = places.splice(chosen, 1);
  places.push(place);
  let written = 0;
  const text = await place.completion.generateCompletion(tokens, {
    grammar: grammars.get(grammar),
    maxTokens: most,
    temperature,
    seed,
    onToken: (each) => (written += each.length),
  });
  process.stdout.write(`${JSON.stringify({ text, read: tokens.length, cached: counts[chosen], written })}\n`);
}
