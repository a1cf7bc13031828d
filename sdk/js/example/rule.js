/** First, in JavaScript: a reward for the number of times that head and tail of the first fact occur together in the corpus. */

import { abstain, firstValidTriplet, sentenceRule, tiers, verdict, wordQuery } from 'corver-sdk';

export default sentenceRule({
  name: 'first-js',
  version: '0.1.0',
  summary: 'the count of the first valid triplet, through the four-tier map, in JavaScript',
  settings: { tiers: tiers() },

  score({ tiers }, sentence, corpus) {
    const first = firstValidTriplet(sentence);
    if (!first) return abstain('no valid triplet');
    const { index, triplet } = first;
    const query = wordQuery(triplet, tiers.top());
    if (!query) return abstain('fewer than two content words');
    const count = corpus.count(query); // without a reply yet, the function ends here
    return verdict(tiers.reward(count), { triplet: index, count });
  },
});
