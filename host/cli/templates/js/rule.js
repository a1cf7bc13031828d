/** {{type}}: does the corpus attest the sentence's first fact? */

import { abstain, firstValidTriplet, number, occurrences, sentenceRule, verdict, wordQuery } from 'corver-sdk';

export default sentenceRule({
  name: '{{name}}',
  version: '0.1.0',
  summary: '{{summary}}', // the host shows it
  settings: {
    noiseFloor: occurrences(0, 'Counts up to this one are noise.'),
    attested: number(0.1, 'The reward of a fact that is attested.'),
    unattested: number(-0.3, 'The reward of a fact that is not.'),
  },

  score({ noiseFloor, attested, unattested }, sentence, corpus) {
    const first = firstValidTriplet(sentence);
    if (!first) return abstain('no valid triplet');
    const { index, triplet } = first;
    const query = wordQuery(triplet, noiseFloor + 1n);
    if (!query) return abstain('fewer than two content words');
    const count = corpus.count(query); // the first time round, this asks the host and stops here
    if (count === undefined) return abstain('the corpus cannot count this');
    return verdict(count > noiseFloor ? attested : unattested, { triplet: index, count });
  },
});
