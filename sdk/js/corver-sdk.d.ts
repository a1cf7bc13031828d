// Types of corver-sdk.js.

/** One fact that a sentence states; the relation may be empty. */
export interface Triplet {
  head: string;
  relation: string;
  tail: string;
}

/** One sentence of a completion. `body` is text without think and answer tags. */
export interface Sentence {
  text: string;
  section: 'think' | 'answer' | 'body';
  triplets: Triplet[];
}

/** One completion with all its sentences. */
export interface Completion {
  question: string;
  /** Accepted answers. */
  golds: string[];
  /** The document that holds the answer, if the question file names it. */
  title?: string;
  /** Texts that hold the answer, if the question file has them. */
  evidence: string[];
  /** The generated text, tags included. */
  text: string;
  /** The content of the answer block; all of `text` without one. */
  answer: string;
  sentences: Sentence[];
}

/** Clauses that must all occur near each other, each a list of alternative words. Counting may stop at `limit`. */
export interface Query {
  allOf: string[][];
  limit?: number;
}

/** A service that a rule may request in addition to counts. */
export type Capability = 'nli' | 'chat' | 'passages';

/** A request for the probability that the hypothesis follows from the premise. */
export interface NliPair {
  premise: string;
  hypothesis: string;
}

/** Probabilities that the hypothesis follows, is open, or is false. A model may only separate the first. */
export interface Entailment {
  entail: number;
  neutral?: number;
  contradict?: number;
}

export interface Message {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

/** A conversation to continue. Replies are cached by prompt; another seed requests another reply. */
export interface ChatPrompt {
  messages: Message[];
  temperature: number;
  topP: number;
  maxTokens: number;
  seed?: number;
}

/** A request for at most `k` passages, from documents with this title or from all. */
export interface Search {
  title?: string;
  query: string;
  k: number;
}

/** A piece of a document; the title is empty if it has none. */
export interface Passage {
  title: string;
  text: string;
}

export type Request =
  | { tag: 'count'; val: Query }
  | { tag: 'nli'; val: NliPair }
  | { tag: 'chat'; val: ChatPrompt }
  | { tag: 'passages'; val: Search };

/** A part of the reward, for the token that holds this character (a code point) of the sentence, counted from 0. */
export interface TokenReward {
  character: number;
  reward: number;
}

export type Credit = { tag: 'token-rewards'; val: TokenReward[] } | { tag: 'advantage-sign' };

/** The kind of credit that a rule's verdicts use. */
export type CreditKind = 'all-tokens' | 'token-rewards' | 'advantage-sign';

/** The count and the triplet that decided, and a text for the trace. */
export interface Because {
  count?: number;
  triplet?: number;
  note?: string;
}

export interface Verdict extends Because {
  reward: number;
  credit?: Credit;
}

export type SentenceOutcome =
  | { tag: 'done'; val: Verdict }
  | { tag: 'abstain'; val?: string }
  | { tag: 'pending'; val: Request[] };

export interface Grade {
  reward: number;
  label: string;
  note?: string;
}

export type ResponseOutcome = { tag: 'done'; val: Grade } | { tag: 'pending'; val: Request[] };

/** Requests whose replies a rule needs before it can finish. */
export declare class Pending {
  constructor(requests: Request[]);
  requests: Request[];
}

/** Definition of a match of several clauses; `wit/corver.wit` has their meanings. */
export type CountMode = 'compatible' | 'exact' | 'span';

/** The host's replies to a rule's requests, in order. A request without a reply throws {@link Pending}. */
export declare class Corpus {
  constructor(
    info: { tokens?: bigint | number; documents?: bigint | number; window?: bigint | number; mode?: CountMode },
    replies: { tag: Request['tag']; val: unknown }[],
    check?: (request: Request, position: number) => void,
  );
  /** Size of the corpus; `undefined` if the source does not report it. */
  readonly tokens?: number;
  readonly documents?: number;
  /** Greatest distance between the clauses of a match, tokens; `undefined` as above. */
  readonly window?: number;
  /** Definition of a match of several clauses; `undefined` as above. */
  readonly mode?: CountMode;
  /** Returns the number of matches; `undefined` if the corpus cannot answer the query. */
  count(query: Query): number | undefined;
  countAll(queries: Query[]): (number | undefined)[];
  entailments(pairs: NliPair[]): Entailment[];
  chats(prompts: ChatPrompt[]): string[];
  passages(searches: Search[]): Passage[][];
}

export declare function prompt(
  content: string,
  options?: { system?: string; temperature?: number; topP?: number; maxTokens?: number; seed?: number },
): ChatPrompt;
export declare function tagged(instructions: string, fields: [name: string, text: string][]): string;

export declare function isPronoun(entity: string): boolean;
export declare function contentWords(entity: string): string[];
export declare function queryAll(words: string[], limit?: number): Query;
export declare function wordQuery(triplet: Triplet, limit?: number): Query | undefined;
export declare function isValid(triplet: Triplet): boolean;
export declare function validTriplets(sentence: Sentence): [index: number, triplet: Triplet][];
export declare function firstValidTriplet(sentence: Sentence): { index: number; triplet: Triplet } | undefined;
export declare function answerBlock(completion: Completion): string | undefined;

export declare function verdict(reward: number, because?: Because & { credit?: Credit }): SentenceOutcome;
export declare function tokenRewards(rewards: [character: number, reward: number][], because?: Because): SentenceOutcome;
export declare function advantageSign(isRight: boolean, because?: Because): SentenceOutcome;
export declare function abstain(reason: string): SentenceOutcome;
export declare function grade(reward: number, label: string, note?: string): ResponseOutcome;

/** Invalid settings. The message names the key. */
export declare class SettingsError extends Error {}

/** A setting: its JSON schema with its default, and the reader of its JSON. */
export interface Setting<T> {
  schema: object;
  read(value: unknown, path: string): T;
}

export declare function number(value: number, description?: string): Setting<number>;
export declare function integer(value: number, description?: string): Setting<number>;
export declare function occurrences(value: number, description?: string): Setting<number>;
export declare function boolean(value: boolean, description?: string): Setting<boolean>;
export declare function string(value: string, description?: string): Setting<string>;
export declare function list<T>(kind: (value: any) => Setting<T>, value: T[], description?: string): Setting<T[]>;
export declare function group<T = any>(
  fields: Record<string, Setting<any>>,
  description?: string,
  make?: (values: any) => T,
): Setting<T>;

/** A step function from counts to rewards. */
export declare class Tiers {
  constructor(steps: { thresholds: number[]; rewards: number[] });
  reward(count: number | undefined): number;
  top(): number;
}
export declare function tiers(thresholds?: number[], rewards?: number[]): Setting<Tiers>;

/** Name, version and settings of a rule. */
export interface About {
  name: string;
  version: string;
  summary: string;
  /** Capabilities that its requests need. A run that does not grant all of them does not start. */
  requires?: Capability[];
  settings?: Record<string, Setting<any>>;
  /** May throw a {@link SettingsError}, but must accept the defaults. */
  validate?(settings: any): void;
}

export interface SentenceRule extends About {
  /** True if the rule reads triplets, the default. If no rule of a run does, nothing is extracted. */
  readsTriplets?: boolean;
  /** The credit of its verdicts. A run whose algorithm cannot use it does not start. */
  credit?: CreditKind;
  score(settings: any, sentence: Sentence, corpus: Corpus): SentenceOutcome;
}

export interface ResponseRule extends About {
  grade(settings: any, completion: Completion, corpus: Corpus): ResponseOutcome;
}

/** A rule as the component exports it. */
export interface Rule<Outcome> {
  manifest: object;
  configure(json: string): any;
  run(settings: any, subject: any, corpus: Corpus): Outcome;
}

export declare function sentenceRule(rule: SentenceRule): Rule<SentenceOutcome>;
export declare function responseRule(rule: ResponseRule): Rule<ResponseOutcome>;

/** The completions of a component's batch, for the component only. */
export declare class Batch<Outcome = any> {
  constructor(completions: unknown[][], run: (subject: any, replies: any[]) => Outcome);
  reply(replies: any[]): void;
  run(): Outcome[][];
}
