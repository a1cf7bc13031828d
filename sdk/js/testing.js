/** Runs a rule without the host, against answers given by hand. */

import { isDeepStrictEqual } from 'node:util';

import { Corpus } from './corver-sdk.js';

// What the host allows by default.
const ROUNDS = 4;
const QUESTIONS_PER_SENTENCE = 64;
const QUESTIONS_PER_COMPLETION = 1024;

/** @typedef {import('./corver-sdk.js').Sentence} Sentence  @typedef {import('./corver-sdk.js').Completion} Completion */

/**
 * A sentence of a think block with these triplets.
 * @param {string} text
 * @param {[head: string, relation: string, tail: string][]} triplets
 * @returns {Sentence}
 */
export function sentence(text, triplets) {
  const facts = triplets.map(([head, relation, tail]) => ({ head, relation, tail }));
  return { text, section: 'think', triplets: facts };
}

/**
 * A completion as the host cuts it: the think block, which the prompt may have opened, and the answer block, or all of a text
 * without blocks. Each is one sentence here, where the host cuts it into its own; none has triplets.
 * @param {string} question
 * @param {string[]} golds
 * @param {string} text
 * @returns {Completion}
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

/** What stands before and after the first `mark`; the latter is `undefined` where there is none. */
function cut(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + mark.length)];
}

/**
 * A corpus in which exactly these queries can be asked, each written as it prints: `'Paris AND Peru'`; `undefined` where it
 * cannot answer.
 * @param {Record<string, bigint | undefined>} known
 */
export const counts = (known) => new FakeCorpus(known);

/** See {@link counts}. What is not told is not known: a rule that asks it fails its test. */
class FakeCorpus {
  #counts;
  #entailments = new Map();
  #replies = [];
  #passages = new Map();
  size = {};

  constructor(counts) {
    this.#counts = counts;
  }

  /**
   * A corpus of so many tokens and documents; without this, both are unknown.
   * @param {bigint} tokens
   * @param {bigint} documents
   */
  ofSize(tokens, documents) {
    this.size = { tokens, documents };
    return this;
  }

  /**
   * `hypothesis` follows from `premise` with this probability.
   * @param {string} premise
   * @param {string} hypothesis
   * @param {number} probability
   */
  entails(premise, hypothesis, probability) {
    this.#entailments.set(printed({ tag: 'nli', val: { premise, hypothesis } }), { entail: probability });
    return this;
  }

  /**
   * A prompt whose last message holds `part` is replied to like this. What was told first decides.
   * @param {string} part
   * @param {string} reply
   */
  replies(part, reply) {
    this.#replies.push([part, reply]);
    return this;
  }

  /**
   * A search finds these texts, best first, all of documents with this title, or of any where it is `undefined`.
   * @param {string | undefined} title
   * @param {string} query
   * @param {string[]} texts
   */
  finds(title, query, texts) {
    const passages = texts.map((text) => ({ title: title ?? '', text }));
    this.#passages.set(printed({ tag: 'passages', val: { title, query } }), passages);
    return this;
  }

  /**
   * @param {import('./corver-sdk.js').Request} request
   * @returns {import('./corver-sdk.js').Reply}
   */
  answer(request) {
    const { tag, val } = request;
    const told = printed(request);
    const known = {
      count: () => Object.hasOwn(this.#counts, told) && { occurrences: this.#counts[told], exact: true },
      nli: () => this.#entailments.get(told),
      chat: () => this.#replies.find(([part]) => val.messages.at(-1).content.includes(part))?.[1],
      passages: () => this.#passages.get(told)?.slice(0, val.k),
    };
    const answer = known[tag]();
    if (answer === undefined || answer === false) throw new Error(`the corpus does not hold ${JSON.stringify(told)}`);
    return { tag, val: answer };
  }
}

/**
 * Calls the rule as the host would, until it judges.
 * @param {ReturnType<import('./corver-sdk.js').sentenceRule>} rule
 * @param {Sentence} sentence
 * @param {FakeCorpus} corpus
 * @param {object} [settings]
 * @returns {Partial<import('./corver-sdk.js').Verdict> & {asked: string[]}}
 *   What the host would record; `reward` is `undefined` where the rule abstained.
 */
export function run(rule, sentence, corpus, settings = {}) {
  const { tag, val, asked } = settle(rule, sentence, corpus, settings, QUESTIONS_PER_SENTENCE);
  if (tag === 'abstain') return { note: val, asked };
  checkFinite(val.reward);
  if (val.credit?.tag === 'points') checkPoints(val.credit.val, val.reward, sentence.text);
  return { ...val, asked };
}

/**
 * Calls the response rule as the host would, until it grades.
 * @param {ReturnType<import('./corver-sdk.js').responseRule>} rule
 * @param {Completion} completion
 * @param {FakeCorpus} corpus
 * @param {object} [settings]
 * @returns {import('./corver-sdk.js').Grade & {asked: string[]}}
 */
export function runResponse(rule, completion, corpus, settings = {}) {
  const { val, asked } = settle(rule, completion, corpus, settings, QUESTIONS_PER_COMPLETION);
  checkFinite(val.reward);
  if (!/^\S+$/.test(val.label)) throw new Error(`the label ${JSON.stringify(val.label)} is not one word`);
  return { ...val, asked };
}

function settle(rule, subject, corpus, settings, questions) {
  const configured = rule.configure(JSON.stringify(settings));
  const [requests, replies] = [[], []];
  const check = (request, place) => {
    if (!isDeepStrictEqual(request, requests[place])) {
      throw new Error('called again, the rule asks something else than before');
    }
  };
  for (let round = 0; round <= ROUNDS; round++) {
    const { tag, val } = rule.judge(configured, subject, new Corpus(corpus.size, [...replies], check));
    if (tag !== 'ask') return { tag, val, asked: [...new Set(requests.map(printed))] };
    for (const request of val) {
      if (request.tag !== 'count' && !rule.manifest.asks.includes(request.tag)) {
        throw new Error(`the rule asks ${request.tag}, which its \`asks\` does not name`);
      }
      replies.push(corpus.answer(request));
      requests.push(request);
    }
    if (requests.length > questions) throw new Error(`${requests.length} questions: at most ${questions} are allowed`);
  }
  throw new Error(`the rule still asks after ${ROUNDS} rounds of answers`);
}

function checkFinite(reward) {
  if (!Number.isFinite(reward)) throw new Error(`the reward is ${reward}: it must be finite`);
}

function checkPoints(points, reward, text) {
  const { length } = [...text];
  if (points.some(({ character }) => character < 0 || character >= length)) {
    throw new Error(`the verdict pays a character beyond the ${length} of the sentence`);
  }
  const sum = points.reduce((sum, { reward }) => sum + reward, 0);
  if (!(Math.abs(sum - reward) <= 1e-4)) throw new Error(`the shares add up to ${sum}, and the reward is ${reward}`);
}

/** As `asked` shows it: a query by itself, anything else after its kind. */
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
