// First, in Go, from corver.wit alone: a reward for the number of times that the names of the sentence's first fact
// occur together in the corpus. The Makefile builds it. A name is a capitalised word; the rule has no settings.
package export_corver_reward_sentence_scoring

import (
	"strings"

	"go.bytecodealliance.org/pkg/wit/types"
	. "wit_component/corver_reward_types"
)

var batch []Completion

const limit = 20 // larger counts have the same reward

func Describe() Manifest {
	return Manifest{
		Name:           "first-go",
		Version:        "0.1.0",
		Summary:        "the count of the first fact with two names, through four tiers, in Go",
		SettingsSchema: `{"type": "object", "additionalProperties": false}`,
		Requires:       nil, // only counts
		ReadsTriplets:  true,
		Credit:         CreditKindAllTokens,
	}
}

func Configure(settings string) wit_types.Result[wit_types.Unit, string] {
	if settings != "{}" {
		return wit_types.Err[wit_types.Unit]("settings: this rule has none")
	}
	return wit_types.Ok[wit_types.Unit, string](wit_types.Unit{})
}

func Score(completions []Completion, corpus CorpusInfo) [][]SentenceOutcome {
	batch = completions
	outcomes := make([][]SentenceOutcome, len(batch))
	for i, completion := range batch {
		for _, sentence := range completion.Sentences {
			outcomes[i] = append(outcomes[i], score(sentence, nil))
		}
	}
	return outcomes
}

func Resume(replies []Reply) [][]SentenceOutcome {
	var outcomes [][]SentenceOutcome
	for _, completion := range batch {
		if !hasQuery(completion) {
			continue // settled
		}
		var scored []SentenceOutcome
		for _, sentence := range completion.Sentences {
			scored = append(scored, score(sentence, &replies))
		}
		outcomes = append(outcomes, scored)
	}
	return outcomes
}

// score uses the next reply; without replies, the outcome is pending.
func score(sentence Sentence, replies *[]Reply) SentenceOutcome {
	query, triplet, found := findQuery(sentence)
	if !found {
		return MakeSentenceOutcomeAbstain(wit_types.Some("no valid triplet"))
	}
	if replies == nil {
		return MakeSentenceOutcomePending([]Request{MakeRequestCount(query)})
	}
	count := (*replies)[0].Count().Occurrences
	*replies = (*replies)[1:]
	return MakeSentenceOutcomeDone(Verdict{
		Reward:  reward(count),
		Count:   count,
		Triplet: wit_types.Some(triplet),
		Note:    wit_types.None[string](),
		Credit:  wit_types.None[Credit](), // every token of the sentence
	})
}

func hasQuery(completion Completion) bool {
	for _, sentence := range completion.Sentences {
		if _, _, found := findQuery(sentence); found {
			return true
		}
	}
	return false
}

// findQuery returns the query and the index of the first triplet with two names.
func findQuery(sentence Sentence) (query Query, triplet uint32, found bool) {
	for i, triplet := range sentence.Triplets {
		var clauses [][]string
		for _, word := range strings.Fields(triplet.Head + " " + triplet.Tail) {
			if 'A' <= word[0] && word[0] <= 'Z' {
				clauses = append(clauses, []string{word})
			}
		}
		if len(clauses) >= 2 {
			return Query{AllOf: clauses, Limit: wit_types.Some[uint64](limit)}, uint32(i), true
		}
	}
	return Query{}, 0, false
}

func reward(count wit_types.Option[uint64]) float32 {
	switch {
	case count.IsNone():
		return 0
	case count.Some() == 0:
		return -0.3
	case count.Some() < 5:
		return -0.1
	case count.Some() < limit:
		return 0
	}
	return 0.1
}
