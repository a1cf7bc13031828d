/** Entailed, in JavaScript: a verdict by whether a passage of the corpus entails the sentence. */

import { abstain, number, sentenceRule, tokenRewards } from 'corver-sdk';

export default sentenceRule({
  name: 'entailed-js',
  version: '0.1.0',
  summary: 'rewards the last token of a sentence if a passage entails it, in JavaScript',
  requires: ['passages', 'nli'],
  credit: 'token-rewards',
  settings: {
    threshold: number(0.5, 'Lowest probability at which a passage entails the sentence.'),
    reward: number(1, 'Reward of an entailed sentence; the others get its negative.'),
  },

  score({ threshold, reward }, { text }, corpus) {
    const [passages] = corpus.passages([{ query: text, k: 3 }]); // without a reply yet, the function ends here
    if (passages.length === 0) return abstain('no passage was found');
    const pairs = passages.map((passage) => ({ premise: passage.text, hypothesis: text }));
    const isEntailed = corpus.entailments(pairs).some(({ entail }) => entail >= threshold);
    return tokenRewards([[[...text].length - 1, isEntailed ? reward : -reward]]);
  },
});
