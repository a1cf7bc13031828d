// Types of testing.js.

import type { Completion, CountMode, Request, Sentence, Verdict, Grade } from './corver-sdk.js';

/** A rule, as `sentenceRule` and `responseRule` return it. */
type Rule = object;

/** Returns a sentence of a think block with these triplets. */
export declare function sentence(text: string, triplets: [head: string, relation: string, tail: string][]): Sentence;

/**
 * Returns a completion with its blocks as the host finds them if the answer block follows the think block, each as one
 * sentence without triplets.
 */
export declare function response(question: string, golds: string[], text: string): Completion;

/** Returns a corpus with these counts. A query is written as it prints; `undefined` is an unknown count. */
export declare function counts(known: Record<string, number | undefined>): FakeCorpus;

/** A corpus that has the given replies only: a rule that requests another one fails its test. */
export interface FakeCorpus {
  ofSize(tokens: number, documents: number): this;
  ofWindow(tokens: number): this;
  ofMode(mode: CountMode): this;
  entails(premise: string, hypothesis: string, probability: number): this;
  replies(part: string, reply: string): this;
  finds(title: string | undefined, query: string, texts: string[]): this;
  replyTo(request: Request): { tag: Request['tag']; val: unknown };
}

/** Requests of a rule, each once, as they print. */
interface Requested {
  requests: string[];
}

/** Runs the rule on a sentence until it returns a verdict or abstains, in which case `reward` is `undefined`. */
export declare function run(
  rule: Rule,
  sentence: Sentence,
  corpus: FakeCorpus,
  settings?: object,
): Partial<Verdict> & Requested;

/** Runs the response rule on a completion until it returns a grade. */
export declare function runResponse(
  rule: Rule,
  completion: Completion,
  corpus: FakeCorpus,
  settings?: object,
): Grade & Requested;
