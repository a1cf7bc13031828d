/**
 * The toolkit for reward rules in JavaScript.
 *
 * The module `rule.js` exports a {@link sentenceRule} as its default, `response.js` a {@link responseRule};
 * `corver-host plugin build` compiles it. `corver-sdk.d.ts` has all types. `example/rule.js` is a complete rule, and
 * `testing.js` runs one without the host. The terms are those of `corver-sdk` for Rust.
 *
 * A rule is a pure function. It has no state, reads no clock, and sends requests through its {@link Corpus} only. A request
 * without a reply throws {@link Pending}; once the reply is there, the function runs again from its first line. So it must
 * send the same requests in the same order each time.
 *
 * **Settings** are the rule's `settings`: each key has a kind, a default and a description. `corver-host plugin check` shows
 * them. A value of another kind or an unknown key is rejected by name. `score` gets the values with defaults filled in.
 *
 * ```js
 * settings: {
 *   noiseFloor: occurrences(0, 'Counts up to this number are noise.'),
 *   weights: list(number, [1, 0.5], 'One per fact.'),
 *   tiers: tiers(),
 * },
 * score({ noiseFloor, weights, tiers }, sentence, corpus) { … }
 * ```
 *
 * Counts are numbers. One above `Number.MAX_SAFE_INTEGER` is given as that.
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
 * Requests whose replies a rule needs before it can finish. It is thrown, but is no `Error`: collecting a stack takes longer
 * than the rest of a rule.
 */
export class Pending {
  constructor(requests) {
    this.requests = requests;
  }
}

/**
 * The host's replies to a rule's requests, in order. A request without a reply throws {@link Pending}. Counts are always
 * available; every other request needs a capability in the rule's `requires`.
 */
export class Corpus {
  #replies;
  #check;
  #used = 0;

  /** `check` is called with each request that has a reply, and its position. */
  constructor({ tokens, documents, window, mode }, replies, check = () => {}) {
    this.tokens = fromU64(tokens);
    this.documents = fromU64(documents);
    this.window = fromU64(window);
    this.mode = mode;
    this.#replies = replies;
    this.#check = check;
  }

  /** Returns the number of matches; `undefined` if the corpus cannot answer the query. */
  count(query) {
    return this.countAll([query])[0];
  }

  /** Returns one count per query. Missing replies are requested together, in one round; equal queries are one request. */
  countAll(queries) {
    return this.#all('count', queries).map(({ occurrences }) => fromU64(occurrences));
  }

  /** Returns the entailment of each pair. Needs `requires: ['nli']`. */
  entailments(pairs) {
    return this.#all('nli', pairs);
  }

  /** Returns a chat model's reply to each prompt. Needs `requires: ['chat']`. */
  chats(prompts) {
    return this.#all('chat', prompts);
  }

  /** Returns the passages of each search, best first. Needs `requires: ['passages']`. */
  passages(searches) {
    return this.#all('passages', searches);
  }

  #all(tag, values) {
    // Equal requests are sent once: an extractor repeats facts, and a sentence has a limit.
    const keys = values.map((val) => JSON.stringify(val));
    const positions = new Map();
    const requests = [];
    keys.forEach((key, i) => {
      if (positions.has(key)) return;
      positions.set(key, requests.length);
      requests.push({ tag, val: values[i] });
    });
    const replies = this.#replies.slice(this.#used, this.#used + requests.length);
    replies.forEach((reply, i) => {
      if (reply.tag !== tag) throw new Error('run again, the rule sends another request than before');
      this.#check(requests[i], this.#used + i);
    });
    if (replies.length < requests.length) throw new Pending(requests.slice(replies.length));
    this.#used += replies.length;
    return keys.map((key) => replies[positions.get(key)].val);
  }
}

/** Returns the number of a u64 of the contract, at most `Number.MAX_SAFE_INTEGER`. */
function fromU64(value) {
  return value === undefined ? undefined : Math.min(Number(value), Number.MAX_SAFE_INTEGER);
}

/** Returns a prompt of one user message, after a system message if given, for the most probable reply of at most 512 tokens. */
export function prompt(content, { system, temperature = 0, topP = 1, maxTokens = 512, seed } = {}) {
  const messages = [{ role: 'user', content }];
  if (system !== undefined) messages.unshift({ role: 'system', content: system });
  return { messages, temperature, topP, maxTokens, seed };
}

/**
 * Returns the text of a {@link prompt}: the instructions, followed by each text in the tag of its name:
 * `<text>Rome is old.</text>`. No text can end its field or start another: the tags of all fields are removed from it, in any
 * spelling (`</TEXT >`, `<text a="b">`).
 */
export function tagged(instructions, fields) {
  const names = fields.map(([name]) => name.toLowerCase());
  const blocks = fields.map(([name, text]) => `<${name}>${withoutTags(text, names)}</${name}>`);
  return [instructions, '', ...blocks].join('\n');
}

/** Removes the tags of these names. A tag is removed where it ends, so that the rest of the text cannot form a new one. */
function withoutTags(text, names) {
  const longest = Math.max(...names.map((name) => name.length)) + 3;
  let cleaned = '';
  const starts = [];
  for (const letter of text) {
    if (letter === '<') starts.push(cleaned.length);
    cleaned += letter;
    while (letter === '>' && starts.length > 0) {
      const start = starts.pop();
      const [, name] = cleaned.slice(start, start + longest).match(/^<\/?([^\s/>]+)[\s/>]/) ?? [];
      if (!names.includes(name?.toLowerCase())) continue;
      cleaned = cleaned.slice(0, start);
      break;
    }
  }
  return cleaned;
}

// The engine has no Unicode properties. This misses mathematical capitals, which have no lower case.
const isCapital = (letter) => letter !== letter.toLowerCase() && letter === letter.toUpperCase();

function strip(text) {
  let [start, end] = [0, text.length];
  while (start < end && SPACES.includes(text[start])) start++;
  while (start < end && SPACES.includes(text[end - 1])) end--;
  return text.slice(start, end);
}

/** Returns true for a pronoun, which names nothing by itself. */
export function isPronoun(entity) {
  return PRONOUNS.has(strip(entity).toLowerCase());
}

/**
 * Returns the words of an entity for queries: its capitalised words; without any, its words of three characters or more;
 * without any, all of it. Stop words are left out.
 */
export function contentWords(entity) {
  const words = entity.split(BETWEEN_WORDS).filter((word) => word !== '' && !STOP_WORDS.has(word.toLowerCase()));
  const proper = words.filter((word) => [...word].length > 1 && isCapital(String.fromCodePoint(word.codePointAt(0))));
  if (proper.length > 0) return proper;
  const long = words.filter((word) => [...word].length > 2);
  return long.length > 0 ? long : [strip(entity)];
}

/** Returns the query for all of these words near each other. Words that differ in capitals only are taken once. */
export function queryAll(words, limit) {
  const once = new Map();
  for (const word of words) {
    const lower = word.toLowerCase();
    if (!once.has(lower)) once.set(lower, [word]);
  }
  return { allOf: [...once.values()], limit };
}

/** Returns the query for the content words of head and tail; `undefined` if they are fewer than two. */
export function wordQuery({ head, tail }, limit) {
  const query = queryAll([...contentWords(head), ...contentWords(tail)], limit);
  return query.allOf.length >= 2 ? query : undefined;
}

/** Returns true if both head and tail name something: neither is blank or a pronoun. */
export function isValid({ head, tail }) {
  return [head, tail].every((end) => strip(end) !== '' && !isPronoun(end));
}

/** Returns the valid triplets with their indices, in the extractor's order. */
export function validTriplets(sentence) {
  return [...sentence.triplets.entries()].filter(([, triplet]) => isValid(triplet));
}

/** Returns the first of {@link validTriplets} with its index. */
export function firstValidTriplet(sentence) {
  const index = sentence.triplets.findIndex(isValid);
  return index < 0 ? undefined : { index, triplet: sentence.triplets[index] };
}

/** Returns the content of the answer block, trimmed; `undefined` without an `<answer>`, where `answer` is all of `text`. */
export const answerBlock = ({ text, answer }) => (text.includes('<answer>') ? answer : undefined);

/** Rewards every token of the sentence with a finite number. `because` names the triplet and the count that decided. */
export function verdict(reward, because = {}) {
  return { tag: 'done', val: { reward, ...because } };
}

/**
 * Rewards single tokens: those that hold these characters (code points) of the sentence's text, counted from 0. Several
 * rewards of one token add up. The rule's `credit` is `'token-rewards'`.
 */
export function tokenRewards(rewards, because) {
  const val = rewards.map(([character, reward]) => ({ character, reward }));
  const reward = val.reduce((sum, part) => sum + part.reward, 0);
  return verdict(reward, { ...because, credit: { tag: 'token-rewards', val } });
}

/**
 * Sets the sign of advantages: positive for the tokens of a right sentence, negative for those of a wrong one, after
 * normalisation. No token receives a reward. The rule's `credit` is `'advantage-sign'`.
 */
export function advantageSign(isRight, because) {
  return verdict(isRight ? 1 : -1, { ...because, credit: { tag: 'advantage-sign' } });
}

/** Gives no verdict: the sentence's reward is 0. The reason appears in the trace. */
export function abstain(reason) {
  return { tag: 'abstain', val: reason };
}

/** Rewards the completion with a finite number. The label is one word for it, such as GOOD or BROKEN. */
export function grade(reward, label, note) {
  return { tag: 'done', val: { reward, label, note } };
}

/** Invalid settings. The message names the key. */
export class SettingsError extends Error {}

const expected = (path, kind, value) => new SettingsError(`${path}: expected ${kind}, got ${JSON.stringify(value)}`);
const setting = (kind, value, isKind, description, name = kind) => ({
  schema: { type: kind, default: value, description },
  read(value, path) {
    if (!isKind(value)) throw expected(path, name, value);
    return value;
  },
});

/** A finite number. */
export const number = (value, description) => setting('number', value, Number.isFinite, description);

/** A whole number, which may be negative. */
export const integer = (value, description) => setting('integer', value, Number.isSafeInteger, description);

/** A number of occurrences: a whole number of 0 or more. */
export function occurrences(value, description) {
  const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
  const { schema, read } = setting('integer', value, isCount, description, 'integer of 0 or more');
  return { schema: { ...schema, minimum: 0 }, read };
}

/** `true` or `false`. */
export const boolean = (value, description) =>
  setting('boolean', value, (value) => typeof value === 'boolean', description);

/** A text. */
export const string = (value, description) =>
  setting('string', value, (value) => typeof value === 'string', description);

/** A list of values of one kind, such as `list(number, [0, 1])`. */
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

/** Nested settings. `make` turns the values into what the rule gets, or throws a {@link SettingsError}. */
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

  /** `rewards[0]` is for a count of 0, `rewards[1]` for counts from 1, `rewards[i + 2]` for counts from `thresholds[i]`. */
  constructor({ thresholds, rewards }) {
    if (thresholds.some((at, i) => at <= (thresholds[i - 1] ?? 1))) {
      throw new SettingsError(`\`thresholds\` must ascend and start at 2 or above; got [${thresholds}]`);
    }
    if (rewards.length !== thresholds.length + 2) {
      throw new SettingsError(`\`rewards\` must have ${thresholds.length + 2} entries; got [${rewards}]`);
    }
    // A verdict carries a 32-bit float.
    const notFinite = rewards.find((reward) => !Number.isFinite(Math.fround(reward)));
    if (notFinite !== undefined) {
      throw new SettingsError(`\`rewards\` must be finite 32-bit numbers; got ${notFinite}`);
    }
    this.#thresholds = thresholds;
    this.#rewards = rewards;
  }

  /** Returns the reward of a count; 0 for an unknown count. */
  reward(count) {
    if (count === undefined) return 0;
    return count === 0 ? this.#rewards[0] : this.#rewards[1 + this.#thresholds.filter((at) => count >= at).length];
  }

  /** Returns the lowest count of the highest tier. */
  top() {
    return this.#thresholds.at(-1) ?? 1;
  }
}

/** The setting for a map from counts to rewards; the default is the paper's. */
export const tiers = (thresholds = [5, 20], rewards = [-0.3, -0.1, 0, 0.1]) =>
  group(
    {
      thresholds: list(occurrences, thresholds, 'Counts, ascending, the first 2 or more.'),
      rewards: list(number, rewards, 'Rewards of a count of 0, of counts from 1, and of counts from each threshold.'),
    },
    'A step function from counts to rewards.',
    (steps) => new Tiers(steps),
  );

/** Returns a sentence rule: `score(settings, sentence, corpus)` returns the verdict for one sentence. */
export const sentenceRule = ({ score, ...about }) => rule(about, score);

/** Returns a response rule, an answer judge or a format check: `grade(settings, completion, corpus)` returns the grade. */
export const responseRule = ({ grade, ...about }) =>
  rule({ ...about, readsTriplets: false, credit: 'all-tokens' }, grade);

function rule(about, method) {
  const { name, version, summary, requires = [], readsTriplets = true, credit = 'all-tokens' } = about;
  const { settings = {}, validate = () => {} } = about;
  const all = group(settings, undefined, (read) => {
    validate(read);
    return read;
  });
  const settingsSchema = JSON.stringify(all.schema);
  return {
    manifest: { name, version, summary, settingsSchema, requires, readsTriplets, credit },
    /** Returns the settings of a JSON text, or throws a {@link SettingsError}. */
    configure: (json) => all.read(JSON.parse(json), ''),
    /** Returns the outcome for a sentence or a completion. */
    run(settings, subject, corpus) {
      try {
        return method(settings, subject, corpus);
      } catch (error) {
        if (error instanceof Pending) return { tag: 'pending', val: error.requests };
        throw error;
      }
    },
  };
}

/**
 * The completions of a component's batch, from the first call through every `resume`. Each is a list of subjects: its
 * sentences for a sentence rule, itself for a response rule.
 */
export class Batch {
  #run;
  #open;

  /** `run(subject, replies)` returns the outcome for a subject. */
  constructor(completions, run) {
    this.#run = run;
    this.#open = completions.map((subjects) => subjects.map((given) => ({ given, replies: [], pending: 0 })));
  }

  /** Adds the replies to the pending requests, in their order. */
  reply(replies) {
    let used = 0;
    for (const subject of this.#open.flat()) {
      subject.replies.push(...replies.slice(used, (used += subject.pending)));
    }
  }

  /** Returns the outcome for each subject of each open completion. A completion with a pending subject stays open. */
  run() {
    const outcomes = this.#open.map((subjects) =>
      subjects.map((subject) => {
        const outcome = this.#run(subject.given, subject.replies);
        subject.pending = outcome.tag === 'pending' ? outcome.val.length : 0;
        return outcome;
      }),
    );
    this.#open = this.#open.filter((subjects) => subjects.some(({ pending }) => pending > 0));
    return outcomes;
  }
}
