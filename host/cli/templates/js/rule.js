/** {{type}}: a reward for sentences whose first fact the corpus attests. */

import { abstain, firstValidTriplet, number, occurrences, sentenceRule, verdict, wordQuery } from 'corver-sdk';

export default sentenceRule({
  name: '{{name}}',
  version: '0.1.0',
  summary: '{{summary}}', // the host shows it
  settings: {
    noiseFloor: occurrences(0, 'Counts up to this number are noise.'),
    attested: number(0.1, 'Reward of an attested fact.'),
    unattested: number(-0.3, 'Reward of an unattested fact.'),
  },

  score({ noiseFloor, attested, unattested }, sentence, corpus) {
    const first = firstValidTriplet(sentence);
    if (!first) return abstain('no valid triplet');
    const { index, triplet } = first;
    const query = wordQuery(triplet, noiseFloor + 1);
    if (!query) return abstain('fewer than two content words');
    const count = corpus.count(query); // without a reply yet, the function ends here
    if (count === undefined) return abstain('the corpus cannot count this');
    return verdict(count > noiseFloor ? attested : unattested, { triplet: index, count });
  },
});
