/** Entailed, in JavaScript: does a passage of the corpus entail the sentence? */

import { abstain, boolean, label, number, points, sentenceRule } from 'corver-sdk';

export default sentenceRule({
  name: 'entailed-js',
  version: '0.1.0',
  summary: 'labels a sentence by whether a passage entails it, in JavaScript',
  asks: ['passages', 'nli'],
  settings: {
    threshold: number(0.5, 'From this probability on, a passage entails the sentence.'),
    pay: boolean(false, "Pays the sentence's last token 1 or -1, in the place of a label."),
  },

  score({ threshold, pay }, { text }, corpus) {
    const [found] = corpus.passages([{ query: text, k: 3 }]); // the first time round, this asks the host and stops here
    if (found.length === 0) return abstain('no passage was found');
    const pairs = found.map((passage) => ({ premise: passage.text, hypothesis: text }));
    const isEntailed = corpus.entailments(pairs).some(({ entail }) => entail >= threshold);
    return pay ? points([[[...text].length - 1, isEntailed ? 1 : -1]]) : label(isEntailed);
  },
});
