/** Runs a rule without the host, with given counts and replies. */

import { isDeepStrictEqual } from 'node:util';

import { Corpus } from './corver-sdk.js';

// The host's default limits.
const ROUNDS = 4;
const REQUESTS_PER_SENTENCE = 64;
const REQUESTS_PER_COMPLETION = 1024;

/** Returns a sentence of a think block with these triplets. */
export function sentence(text, triplets) {
  const facts = triplets.map(([head, relation, tail]) => ({ head, relation, tail }));
  return { text, section: 'think', triplets: facts };
}

/**
 * Returns a completion with its blocks as the host finds them if the answer block follows the think block: the think block,
 * which the prompt may have opened, and the answer block, or all of a text without blocks. Each block is one sentence here,
 * without triplets; the host splits it.
 */
export function response(question, golds, text) {
  const [before, opened] = cut(text, '<answer>');
  const answered = opened && cut(opened, '</answer>')[0].trim();
  const [opening, thought] = cut(before, '<think>');
  const isThought = thought !== undefined || opening.includes('</think>');
  const think = isThought ? cut(thought ?? opening, '</think>')[0] : undefined;
  const body = isThought || answered !== undefined ? undefined : text;
  const blocks = Object.entries({ think, answer: answered, body });
  const sentences = blocks.map(([section, text = '']) => ({ text: text.trim(), section, triplets: [] }));
  const answer = answered ?? text.trim();
  return { question, golds, evidence: [], text, answer, sentences: sentences.filter(({ text }) => text !== '') };
}

/** Returns the text before and after the first `mark`; without one, the entire text. */
function cut(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + mark.length)];
}

/** Returns a corpus with these counts. A query is written as it prints, `'Paris AND Peru'`; `undefined` is an unknown count. */
export const counts = (known) => new FakeCorpus(known);

/** A corpus that has the given replies only: a rule that requests another one fails its test. */
class FakeCorpus {
  #counts;
  #entailments = new Map();
  #replies = [];
  #passages = new Map();
  info = {};

  constructor(counts) {
    this.#counts = counts;
  }

  /** Sets the size of the corpus, which is unknown otherwise. */
  ofSize(tokens, documents) {
    this.info = { ...this.info, tokens, documents };
    return this;
  }

  /** Sets the greatest distance between the clauses of a match, tokens. It is unknown otherwise. */
  ofWindow(tokens) {
    this.info = { ...this.info, window: tokens };
    return this;
  }

  /** Sets the definition of a match: `compatible`, `exact` or `span`. It is unknown otherwise. */
  ofMode(mode) {
    this.info = { ...this.info, mode };
    return this;
  }

  /** Adds the probability that `hypothesis` follows from `premise`. */
  entails(premise, hypothesis, probability) {
    this.#entailments.set(printed({ tag: 'nli', val: { premise, hypothesis } }), { entail: probability });
    return this;
  }

  /** Adds the reply to prompts whose last message contains `part`. The first match decides. */
  replies(part, reply) {
    this.#replies.push([part, reply]);
    return this;
  }

  /** Adds the passages that a search returns, best first, from documents with this title or, if `undefined`, from all. */
  finds(title, query, texts) {
    const passages = texts.map((text) => ({ title: title ?? '', text }));
    this.#passages.set(printed({ tag: 'passages', val: { title, query } }), passages);
    return this;
  }

  replyTo(request) {
    const { tag, val } = request;
    const text = printed(request);
    const known = {
      count: () => Object.hasOwn(this.#counts, text) && { occurrences: this.#counts[text], precision: 'exact' },
      nli: () => this.#entailments.get(text),
      chat: () => this.#replies.find(([part]) => val.messages.at(-1).content.includes(part))?.[1],
      passages: () => this.#passages.get(text)?.slice(0, val.k),
    };
    const reply = known[tag]();
    if (reply === undefined || reply === false) throw new Error(`the corpus does not have ${JSON.stringify(text)}`);
    return { tag, val: reply };
  }
}

/** Runs the rule on a sentence until it returns a verdict or abstains, in which case `reward` is `undefined`. */
export function run(rule, sentence, corpus, settings = {}) {
  const { tag, val, requests } = settle(rule, sentence, corpus, settings, REQUESTS_PER_SENTENCE);
  if (tag === 'abstain') return { note: val, requests };
  checkFinite(val.reward);
  checkReason(val, sentence.triplets.length);
  checkCredit(val, sentence.text, rule.manifest.credit);
  return { ...val, requests };
}

/** Runs the response rule on a completion until it returns a grade. */
export function runResponse(rule, completion, corpus, settings = {}) {
  const { val, requests } = settle(rule, completion, corpus, settings, REQUESTS_PER_COMPLETION);
  checkFinite(val.reward);
  if (!/^\S+$/.test(val.label)) throw new Error(`the label ${JSON.stringify(val.label)} is not one word`);
  return { ...val, requests };
}

function settle(rule, subject, corpus, settings, limit) {
  const configured = rule.configure(JSON.stringify(settings));
  const requests = [];
  const replies = [];
  const check = (request, position) => {
    if (!isDeepStrictEqual(request, requests[position])) {
      throw new Error('run again, the rule sends another request than before');
    }
  };
  for (let round = 0; round <= ROUNDS; round++) {
    const { tag, val } = rule.run(configured, subject, new Corpus(corpus.info, [...replies], check));
    if (tag !== 'pending') return { tag, val, requests: [...new Set(requests.map(printed))] };
    for (const request of val) {
      if (request.tag !== 'count' && !rule.manifest.requires.includes(request.tag)) {
        throw new Error(`the rule requests ${request.tag}, which its \`requires\` does not name`);
      }
      if (request.tag === 'count' && !isCount(request.val.limit ?? 0)) {
        throw new Error(`the limit ${request.val.limit} is not a whole number`);
      }
      replies.push(corpus.replyTo(request));
      requests.push(request);
    }
    if (requests.length > limit) throw new Error(`${requests.length} requests: at most ${limit} are allowed`);
  }
  throw new Error(`the rule is still pending after ${ROUNDS} rounds of replies`);
}

function checkFinite(reward) {
  if (!Number.isFinite(reward)) throw new Error(`the reward is ${reward}: it must be finite`);
}

function checkReason({ count, triplet }, length) {
  if (count !== undefined && !isCount(count)) throw new Error(`the count ${count} is not a whole number`);
  if (triplet !== undefined && !(isCount(triplet) && triplet < length)) throw new Error(`triplet ${triplet} of ${length}`);
}

const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

function checkCredit({ reward, credit }, text, declared) {
  if (!credit) return;
  if (credit.tag === 'token-rewards') checkTokenRewards(credit.val, reward, text);
  if (credit.tag !== declared) {
    throw new Error(`the verdict has the credit ${credit.tag}, and the rule's \`credit\` is ${declared}`);
  }
}

function checkTokenRewards(parts, reward, text) {
  const { length } = [...text];
  if (parts.some(({ character }) => character < 0 || character >= length)) {
    throw new Error(`a token reward for a character beyond the ${length} of the sentence`);
  }
  const sum = parts.reduce((sum, part) => sum + part.reward, 0);
  if (!(Math.abs(sum - reward) <= 1e-4)) {
    throw new Error(`the token rewards add up to ${sum}, and the reward is ${reward}`);
  }
}

/** Returns a query by itself, any other request after its kind. */
function printed({ tag, val }) {
  switch (tag) {
    case 'count':
      return val.allOf.map((words) => words.join(' OR ')).join(' AND ');
    case 'nli':
      return `nli: ${val.premise} => ${val.hypothesis}`;
    case 'chat':
      return `chat: ${val.messages.at(-1).content}`;
    case 'passages':
      return `passages${val.title === undefined ? '' : ` of ${val.title}`}: ${val.query}`;
  }
}
