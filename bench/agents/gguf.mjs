// Completes prompts with a GGUF file through node-llama-cpp: one JSON object a line on stdin, one on stdout.
//
//     node gguf.mjs NODE_MODULES FILE THREADS CONTEXT
//
// In: {prompt, grammar, most}. Out: {text, read, cached, written}, the last three in tokens. What a prompt shares with the
// one before it stays in the context and is not read again. Decoding is greedy.
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [modules, file, threads, contextSize] = process.argv.slice(2);
const { getLlama, LlamaCompletion, LlamaGrammar } = await import(
  pathToFileURL(join(modules, "node-llama-cpp", "dist", "index.js")).href
);
const llama = await getLlama({ gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error" });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({ contextSize: Number(contextSize), sequences: 1, threads: Number(threads) });
const sequence = context.getSequence();
const completion = new LlamaCompletion({ contextSequence: sequence });
const grammars = new Map();

for await (const line of createInterface({ input: process.stdin })) {
  const { prompt, grammar, most } = JSON.parse(line);
  if (!grammars.has(grammar)) grammars.set(grammar, new LlamaGrammar(llama, { grammar }));
  const tokens = model.tokenize(prompt, true);
  const held = sequence.contextTokens;
  let cached = 0;
  while (cached < tokens.length && cached < held.length && tokens[cached] === held[cached]) cached += 1;
  let written = 0;
  const text = await completion.generateCompletion(tokens, {
    grammar: grammars.get(grammar),
    maxTokens: most,
    temperature: 0,
    onToken: (each) => (written += each.length),
  });
  process.stdout.write(`${JSON.stringify({ text, read: tokens.length, cached, written })}\n`);
}
