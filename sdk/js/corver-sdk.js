/**
 * What a reward rule is written with, in JavaScript.
 *
 * A rule is a module `rule.js` whose default export is a {@link sentenceRule}, or `response.js` with a {@link responseRule};
 * `corver-host plugin build` compiles it. It is a pure function: it keeps no state, reads no clock, and asks the host through its
 * {@link Corpus} alone. `example/rule.js` is a whole one. This module follows `corver-sdk` for Rust, name by name.
 *
 * **Settings** are the rule's `settings`, a key each: its kind, its default and its meaning. `corver-host plugin check` shows
 * them, and a value of another kind or an unknown key is refused by name. `score` gets what was set, or the default.
 *
 * ```js
 * settings: {
 *   noiseFloor: occurrences(0, 'Counts up to this one are noise.'),
 *   weights: list(number, [1, 0.5], 'One per fact.'),
 *   tiers: tiers(),
 * },
 * score({ noiseFloor, weights, tiers }, sentence, corpus) { … }
 * ```
 *
 * | kind | JSON | what `score` gets |
 * | --- | --- | --- |
 * | {@link number}, {@link integer} | number | number |
 * | {@link occurrences} | integer of 0 or more | bigint, as counts are |
 * | {@link boolean}, {@link string} | the same | the same |
 * | {@link list} of one of these | array | array |
 * | {@link group} of settings | object | object, or what the group makes of it |
 * | {@link tiers} | `{"thresholds": [5, 20], "rewards": [-0.3, -0.1, 0, 0.1]}` | {@link Tiers} |
 *
 * What a rule sees and answers are the types of `corver.wit`:
 *
 * @typedef {{head: string, relation: string, tail: string}} Triplet
 * @typedef {{text: string, section: 'think' | 'answer' | 'body', triplets: Triplet[]}} Sentence
 * @typedef {object} Completion
 * @property {string} question
 * @property {string[]} golds
 * @property {string} [title] where the answer was found, if the question's file says so
 * @property {string[]} evidence texts that hold the answer, if the question's file brings them
 * @property {string} text what was generated, tags included
 * @property {string} answer what stands in the answer block; all of `text` where there is none
 * @property {Sentence[]} sentences
 *
 * @typedef {{tokens?: bigint, documents?: bigint}} CorpusSize
 * @typedef {{allOf: string[][], enough?: bigint}} Query
 *   Clauses that must all occur near each other, each a list of words of which one is enough. The count matters up to
 *   `enough` only.
 * @typedef {{occurrences?: bigint, exact: boolean}} Count
 * @typedef {'nli' | 'chat' | 'passages'} Verifier
 *   What a rule may ask beside counts, if its `asks` says so.
 * @typedef {{premise: string, hypothesis: string}} Pair
 * @typedef {{entail: number, neutral?: number, contradict?: number}} Entailment
 *   Probabilities. A model that knows only whether the hypothesis follows gives the first alone.
 * @typedef {{role: 'system' | 'user' | 'assistant', content: string}} Message
 * @typedef {{messages: Message[], temperature: number, topP: number, maxTokens: number, seed?: number}} Prompt
 *   See {@link prompt}. One that was asked before is answered as before, unless its seed is another.
 * @typedef {{title?: string, query: string, k: number}} Search
 *   At most `k` passages, in documents of this title or in all.
 * @typedef {{title: string, text: string}} Passage
 * @typedef {{tag: 'count', val: Query} | {tag: 'nli', val: Pair} | {tag: 'chat', val: Prompt} | {tag: 'passages', val: Search}} Request
 * @typedef {{tag: 'count', val: Count} | {tag: 'nli', val: Entailment} | {tag: 'chat', val: string} | {tag: 'passages', val: Passage[]}} Reply
 * @typedef {{character: number, reward: number}} Point
 *   A share of the reward, for the token that holds this character (a code point) of the sentence, counted from 0.
 * @typedef {{tag: 'points', val: Point[]} | {tag: 'sign'}} Credit
 *   Which tokens get a reward, where it is not every token of the sentence: see {@link points} and {@link label}.
 * @typedef {{reward: number, count?: bigint, triplet?: number, note?: string, credit?: Credit}} Verdict
 * @typedef {{tag: 'score', val: Verdict} | {tag: 'abstain', val?: string} | {tag: 'ask', val: Request[]}} Outcome
 * @typedef {{reward: number, label: string, note?: string}} Grade
 * @typedef {{tag: 'graded', val: Grade} | {tag: 'ask', val: Request[]}} Assessment
 */

// Written by sdk/tests/words.rs from the files named.
const STOP_WORDS = new Set([
  // words/stop_words.txt
  'a', 'an', 'and', 'are', 'as', 'at', 'be', 'been', 'being', 'but',
  'by', 'did', 'do', 'does', 'for', 'from', 'had', 'has', 'have',
  'if', 'in', 'is', 'it', 'its', 'no', 'not', 'of', 'on', 'or',
  'so', 'the', 'to', 'was', 'were', 'with',
  // end of words/stop_words.txt
]);
const PRONOUNS = new Set([
  // words/pronouns.txt
  'anyone', 'anything', 'everyone', 'everything', 'he', 'her', 'here',
  'hers', 'herself', 'him', 'himself', 'his', 'i', 'it', 'its',
  'itself', 'me', 'mine', 'my', 'myself', 'nobody', 'nothing', 'our',
  'ours', 'she', 'someone', 'something', 'that', 'their', 'theirs',
  'them', 'themselves', 'there', 'these', 'they', 'this', 'those', 'us',
  'we', 'which', 'who', 'whom', 'you', 'your', 'yours', 'yourself',
  // end of words/pronouns.txt
]);

// The published code's white space: Unicode's, with the information separators and without U+FEFF.
const SPACES =
  '\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a' +
  '\u2028\u2029\u202f\u205f\u3000';
const BETWEEN_WORDS = new RegExp(`[,${SPACES}]+`);

/**
 * The replies that a rule still needs. The host gets them and calls the rule again. It is thrown, but is no `Error`: to gather
 * the stack of one takes longer than all else that a rule does.
 */
export class Ask {
  /** @param {Request[]} requests */
  constructor(requests) {
    this.requests = requests;
  }
}

/**
 * Answers a rule's questions with the replies so far, in order: the first reply is the answer to the first question. A question
 * beyond them throws an {@link Ask}. A rule starts over whenever more replies are there, so it must ask the same in the same
 * order. Counts are always answered; what else a rule asks, its `asks` must name.
 */
export class Corpus {
  #replies;
  #check;
  #answered = 0;

  /**
   * @param {CorpusSize} size
   * @param {Reply[]} replies
   * @param {(request: Request, place: number) => void} [check] is told each request that is answered, for tests
   */
  constructor({ tokens, documents }, replies, check = () => {}) {
    /** How many tokens the counts come from; `undefined` where the source does not say. */
    this.tokens = tokens;
    /** How many documents the counts come from; `undefined` where the source does not say. */
    this.documents = documents;
    this.#replies = replies;
    this.#check = check;
  }

  /**
   * How often `query` matches; `undefined` where the corpus cannot answer it.
   * @param {Query} query
   * @returns {bigint | undefined}
   */
  count(query) {
    return this.countAll([query])[0];
  }

  /**
   * One count per query; all that is missing is asked for at once, which spares rounds.
   * @param {Query[]} queries
   * @returns {(bigint | undefined)[]}
   */
  countAll(queries) {
    return this.#answers('count', queries).map(({ occurrences }) => occurrences);
  }

  /**
   * What each hypothesis is to its premise, all asked for at once. Needs `asks: ['nli']`.
   * @param {Pair[]} pairs
   * @returns {Entailment[]}
   */
  entailments(pairs) {
    return this.#answers('nli', pairs);
  }

  /**
   * What a chat model replies to each prompt, all asked for at once. Needs `asks: ['chat']`.
   * @param {Prompt[]} prompts
   * @returns {string[]}
   */
  chats(prompts) {
    return this.#answers('chat', prompts);
  }

  /**
   * The passages of each search, best first, all asked for at once. Needs `asks: ['passages']`.
   * @param {Search[]} searches
   * @returns {Passage[][]}
   */
  passages(searches) {
    return this.#answers('passages', searches);
  }

  #answers(tag, questions) {
    const requests = questions.map((val) => ({ tag, val }));
    const replies = this.#replies.slice(this.#answered, this.#answered + requests.length);
    replies.forEach((reply, i) => {
      if (reply.tag !== tag) throw new Error('called again, the rule asks something else than before');
      this.#check(requests[i], this.#answered + i);
    });
    if (replies.length < requests.length) throw new Ask(requests.slice(replies.length));
    this.#answered += replies.length;
    return replies.map(({ val }) => val);
  }
}

/**
 * One message of the user, after one of the system if there is any; for the most probable reply of at most 512 tokens.
 * @param {string} content
 * @param {{system?: string, temperature?: number, topP?: number, maxTokens?: number, seed?: number}} [how]
 * @returns {Prompt}
 */
export function prompt(content, { system, temperature = 0, topP = 1, maxTokens = 512, seed } = {}) {
  const messages = [{ role: 'user', content }];
  if (system !== undefined) messages.unshift({ role: 'system', content: system });
  return { messages, temperature, topP, maxTokens, seed };
}

/**
 * The text of a {@link prompt}: the instructions and, below them, each text in the tag of its name: `<text>Rome is old.</text>`. No
 * text can end its field or begin another: the tags of all fields are taken out of it, however they are written (`</TEXT >`,
 * `<text a="b">`).
 * @param {string} instructions
 * @param {[name: string, text: string][]} fields
 */
export function tagged(instructions, fields) {
  const names = fields.map(([name]) => name.toLowerCase());
  const blocks = fields.map(([name, text]) => `<${name}>${without(text, names)}</${name}>`);
  return [instructions, '', ...blocks].join('\n');
}

/** Takes the tags of these names out as they come to their end, so that what is left of the text cannot make up a new one. */
function without(text, names) {
  const enough = Math.max(...names.map((name) => name.length)) + 3;
  let kept = '';
  const starts = [];
  for (const letter of text) {
    if (letter === '<') starts.push(kept.length);
    kept += letter;
    while (letter === '>' && starts.length > 0) {
      const start = starts.pop();
      const [, name] = kept.slice(start, start + enough).match(/^<\/?([^\s/>]+)[\s/>]/) ?? [];
      if (!names.includes(name?.toLowerCase())) continue;
      kept = kept.slice(0, start);
      break;
    }
  }
  return kept;
}

// The engine has no Unicode properties. Mathematical capitals, which have no small form, are the ones missed.
const isCapital = (letter) => letter !== letter.toLowerCase() && letter === letter.toUpperCase();

/** @param {string} text */
function strip(text) {
  let [start, end] = [0, text.length];
  while (start < end && SPACES.includes(text[start])) start++;
  while (start < end && SPACES.includes(text[end - 1])) end--;
  return text.slice(start, end);
}

/**
 * Whether this is a word that names nothing by itself.
 * @param {string} entity
 */
export function isPronoun(entity) {
  return PRONOUNS.has(strip(entity).toLowerCase());
}

/**
 * The capitalised words of an entity; without any, its words of three and more characters; without any, the whole of it. Stop
 * words never count.
 * @param {string} entity
 */
export function contentWords(entity) {
  const words = entity.split(BETWEEN_WORDS).filter((word) => word !== '' && !STOP_WORDS.has(word.toLowerCase()));
  const proper = words.filter((word) => [...word].length > 1 && isCapital(String.fromCodePoint(word.codePointAt(0))));
  if (proper.length > 0) return proper;
  const long = words.filter((word) => [...word].length > 2);
  return long.length > 0 ? long : [strip(entity)];
}

/**
 * All of these words near each other, each once, however it is capitalised. The count matters up to `enough` only.
 * @param {string[]} words
 * @param {bigint} [enough]
 * @returns {Query}
 */
export function wordsQuery(words, enough) {
  const once = new Map();
  for (const word of words) {
    const lower = word.toLowerCase();
    if (!once.has(lower)) once.set(lower, [word]);
  }
  return { allOf: [...once.values()], enough };
}

/**
 * Asks how often the content words of head and tail occur together; `undefined` where they are fewer than two.
 * @param {Triplet} triplet
 * @param {bigint} [enough]
 */
export function wordQuery({ head, tail }, enough) {
  const query = wordsQuery([...contentWords(head), ...contentWords(tail)], enough);
  return query.allOf.length >= 2 ? query : undefined;
}

/**
 * Whether it names both its ends: neither is blank or a pronoun.
 * @param {Triplet} triplet
 */
export function isValid({ head, tail }) {
  return [head, tail].every((end) => strip(end) !== '' && !isPronoun(end));
}

/**
 * The valid triplets with their places, in the extractor's order.
 * @param {Sentence} sentence
 * @returns {[number, Triplet][]}
 */
export function validTriplets(sentence) {
  return [...sentence.triplets.entries()].filter(([, triplet]) => isValid(triplet));
}

/**
 * The first of {@link validTriplets}.
 * @param {Sentence} sentence
 */
export function firstValidTriplet(sentence) {
  const index = sentence.triplets.findIndex(isValid);
  return index < 0 ? undefined : { index, triplet: sentence.triplets[index] };
}

/**
 * Rewards the sentence; `because` says which triplet and count decided, and may add a note. The reward must be finite.
 * @param {number} reward
 * @param {Omit<Verdict, 'reward'>} [because]
 * @returns {Outcome}
 */
export function verdict(reward, because = {}) {
  return { tag: 'score', val: { reward, ...because } };
}

/**
 * Rewards single tokens of the sentence: those that hold these characters (code points) of its text, counted from 0. Shares of one
 * token add up.
 * @param {[character: number, reward: number][]} shares
 * @param {Omit<Verdict, 'reward' | 'credit'>} [because]
 * @returns {Outcome}
 */
export function points(shares, because) {
  const val = shares.map(([character, reward]) => ({ character, reward }));
  const reward = val.reduce((sum, { reward }) => sum + reward, 0);
  return verdict(reward, { ...because, credit: { tag: 'points', val } });
}

/**
 * Says whether the sentence is right. Nobody earns anything: after the advantages were normalised, those of the sentence's tokens
 * become positive where it is right, and negative where it is wrong.
 * @param {boolean} isRight
 * @param {Omit<Verdict, 'reward' | 'credit'>} [because]
 * @returns {Outcome}
 */
export function label(isRight, because) {
  return verdict(isRight ? 1 : -1, { ...because, credit: { tag: 'sign' } });
}

/**
 * Says nothing about the sentence, which then earns 0.
 * @param {string} why
 * @returns {Outcome}
 */
export function abstain(why) {
  return { tag: 'abstain', val: why };
}

/**
 * A reward for the whole completion, and one word for it, such as GOOD or BROKEN. The reward must be finite.
 * @param {number} reward
 * @param {string} label
 * @param {string} [note]
 * @returns {Assessment}
 */
export function grade(reward, label, note) {
  return { tag: 'graded', val: { reward, label, note } };
}

/** Settings that make no sense. The message names the key. */
export class SettingsError extends Error {}

/**
 * A setting: its JSON schema with its default, and how its JSON is read, strictly.
 * @template T
 * @typedef {{schema: object, read: (value: unknown, path: string) => T}} Setting
 */

const expected = (path, kind, value) => new SettingsError(`${path}: expected ${kind}, got ${JSON.stringify(value)}`);
const setting = (kind, value, isKind, description, name = kind) => ({
  schema: { type: kind, default: value, description },
  read(value, path) {
    if (!isKind(value)) throw expected(path, name, value);
    return value;
  },
});

/**
 * A finite number.
 * @param {number} value its default
 * @param {string} [description] its meaning
 * @returns {Setting<number>}
 */
export const number = (value, description) => setting('number', value, Number.isFinite, description);

/**
 * A whole number, which may be negative.
 * @param {number} value its default
 * @param {string} [description] its meaning
 * @returns {Setting<number>}
 */
export const integer = (value, description) => setting('integer', value, Number.isSafeInteger, description);

/**
 * A number of occurrences, which compares with a count: a whole number in JSON, a bigint in the rule.
 * @param {number} value its default
 * @param {string} [description] its meaning
 * @returns {Setting<bigint>}
 */
export function occurrences(value, description) {
  const isNumber = (value) => Number.isSafeInteger(value) && value >= 0;
  const { schema, read } = setting('integer', value, isNumber, description, 'integer of 0 or more');
  return { schema: { ...schema, minimum: 0 }, read: (value, path) => BigInt(read(value, path)) };
}

/**
 * `true` or `false`.
 * @param {boolean} value its default
 * @param {string} [description] its meaning
 * @returns {Setting<boolean>}
 */
export const boolean = (value, description) =>
  setting('boolean', value, (value) => typeof value === 'boolean', description);

/**
 * A text.
 * @param {string} value its default
 * @param {string} [description] its meaning
 * @returns {Setting<string>}
 */
export const string = (value, description) =>
  setting('string', value, (value) => typeof value === 'string', description);

/**
 * A list of values of one kind, such as `list(number, [0, 1])`.
 * @param {(value: any) => Setting<any>} kind
 * @param {any[]} value its default
 * @param {string} [description] its meaning
 * @returns {Setting<any[]>}
 */
export function list(kind, value, description) {
  const { schema, read } = kind(undefined);
  return {
    schema: { type: 'array', items: schema, default: value, description },
    read(value, path) {
      if (!Array.isArray(value)) throw expected(path, 'a list', value);
      return value.map((item, i) => read(item, `${path}[${i}]`));
    },
  };
}

/**
 * Settings within settings.
 * @param {Record<string, Setting<any>>} fields
 * @param {string} [description] its meaning
 * @param {(read: any) => any} [make] turns the values into what the rule is given, or throws a {@link SettingsError}
 * @returns {Setting<any>}
 */
export function group(fields, description, make = (read) => read) {
  const known = Object.keys(fields);
  const each = (of) => Object.fromEntries(known.map((key) => [key, of(fields[key], key)]));
  const defaults = each(({ schema }) => schema.default);
  return {
    schema: {
      type: 'object',
      additionalProperties: false,
      properties: each(({ schema }) => schema),
      default: defaults,
      description,
    },
    read(value, path) {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        throw expected(path || 'settings', 'a JSON object', value);
      }
      const within = path && `${path}.`;
      for (const key of Object.keys(value)) {
        if (!known.includes(key)) {
          throw new SettingsError(`${within}${key}: unknown field \`${key}\`, expected one of ${known.join(', ')}`);
        }
      }
      const given = { ...defaults, ...value };
      const read = each((field, key) => field.read(given[key], `${within}${key}`));
      try {
        return make(read);
      } catch (error) {
        if (error instanceof SettingsError && path) throw new SettingsError(`${path}: ${error.message}`);
        throw error;
      }
    },
  };
}

/** A step function from counts to rewards. */
export class Tiers {
  #thresholds;
  #rewards;

  /**
   * `rewards[0]` for a count of 0, `rewards[1]` from 1 on, `rewards[i + 2]` from `thresholds[i]` on.
   * @param {{thresholds: bigint[], rewards: number[]}} steps
   * @throws {SettingsError} where the thresholds do not ascend from 2 on, or there are not two more rewards than thresholds
   */
  constructor({ thresholds, rewards }) {
    if (thresholds.some((at, i) => at <= (thresholds[i - 1] ?? 1n))) {
      throw new SettingsError(`\`thresholds\` must ascend and start at 2 or above; got [${thresholds}]`);
    }
    if (rewards.length !== thresholds.length + 2) {
      throw new SettingsError(`\`rewards\` must have ${thresholds.length + 2} entries; got [${rewards}]`);
    }
    this.#thresholds = thresholds;
    this.#rewards = rewards;
  }

  /**
   * What this count earns; an unknown count earns 0.
   * @param {bigint | undefined} count
   */
  reward(count) {
    if (count === undefined) return 0;
    return count === 0n ? this.#rewards[0] : this.#rewards[1 + this.#thresholds.filter((at) => count >= at).length];
  }

  /** The count from which on the reward no longer changes. */
  top() {
    return this.#thresholds.at(-1) ?? 1n;
  }
}

/** The setting for a map from counts to rewards; the default is the paper's. */
export const tiers = (thresholds = [5, 20], rewards = [-0.3, -0.1, 0, 0.1]) =>
  group(
    {
      thresholds: list(occurrences, thresholds, 'Counts, ascending, the first at least 2.'),
      rewards: list(number, rewards, 'Two more than thresholds.'),
    },
    'A step function from counts to rewards.',
    (steps) => new Tiers(steps),
  );

/**
 * @typedef {object} About
 * @property {string} name
 * @property {string} version
 * @property {string} summary
 * @property {Verifier[]} [asks] what it asks beside counts; a run that does not grant all of it does not begin
 * @property {boolean} [readsTriplets] whether it looks at sentences' triplets, true by default; where no rule of a run does, nothing is
 *   extracted
 * @property {Record<string, Setting<any>>} [settings]
 * @property {(settings: any) => void} [validate] may throw a {@link SettingsError}
 */

/**
 * A rule for sentences: `score` judges one of them with the settings and the corpus.
 * @param {About & {score: (settings: any, sentence: Sentence, corpus: Corpus) => Outcome}} rule
 */
export const sentenceRule = ({ score, ...about }) => rule(about, score);

/**
 * A rule for whole completions, a judge of answers or a check of their format: `grade` judges one of them with the settings and
 * the corpus.
 * @param {About & {grade: (settings: any, completion: Completion, corpus: Corpus) => Assessment}} rule
 */
export const responseRule = ({ grade, ...about }) => rule(about, grade);

function rule({ name, version, summary, asks = [], readsTriplets = true, settings = {}, validate = () => {} }, decide) {
  const all = group(settings, undefined, (read) => {
    validate(read);
    return read;
  });
  return {
    manifest: { name, version, summary, settingsSchema: JSON.stringify(all.schema), asks, readsTriplets },
    /** @param {string} json  @throws {SettingsError} */
    configure: (json) => all.read(JSON.parse(json), ''),
    /** @param {any} settings  @param {any} subject a sentence or a completion  @param {Corpus} corpus */
    judge(settings, subject, corpus) {
      try {
        return decide(settings, subject, corpus);
      } catch (error) {
        if (error instanceof Ask) return { tag: 'ask', val: error.requests };
        throw error;
      }
    },
  };
}

/** The completions that a component judges, from the contract's first call over every `resume`. */
export class Batch {
  #judge;
  #open;

  /**
   * @template S, J
   * @param {S[][]} completions each a list of what is judged: its sentences, or itself alone
   * @param {(subject: S, replies: Reply[]) => J} judge
   */
  constructor(completions, judge) {
    this.#judge = judge;
    this.#open = completions.map((subjects) => subjects.map((subject) => ({ subject, replies: [], asked: 0 })));
  }

  /**
   * Takes the replies to the requests of the last judgements.
   * @param {Reply[]} replies
   */
  reply(replies) {
    let answered = 0;
    for (const one of this.#open.flat()) one.replies.push(...replies.slice(answered, (answered += one.asked)));
  }

  /** What the rule says of each subject of each open completion; those in which a subject asks stay open. */
  judge() {
    const judge = (one) => {
      const said = this.#judge(one.subject, one.replies);
      one.asked = said.tag === 'ask' ? said.val.length : 0;
      return said;
    };
    const said = this.#open.map((subjects) => subjects.map(judge));
    this.#open = this.#open.filter((subjects) => subjects.some(({ asked }) => asked > 0));
    return said;
  }
}
