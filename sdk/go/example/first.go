// First, in Go, from corver.wit alone: how often do the names in the sentence's first fact occur together in the corpus?
// The Makefile builds it. A name is a capitalised word; the rule has no settings.
package export_corver_reward_sentence_scoring

import (
	"strings"

	"go.bytecodealliance.org/pkg/wit/types"
	. "wit_component/corver_reward_types"
)

var batch []Completion

const enough = 20 // from here on, the reward stays the same

func Describe() Manifest {
	return Manifest{
		Name:           "first-go",
		Version:        "0.1.0",
		Summary:        "the count of the first fact with two names, through four tiers, in Go",
		SettingsSchema: `{"type": "object", "additionalProperties": false}`,
		Asks:           nil, // counts alone
		ReadsTriplets:  true,
	}
}

func Configure(settings string) wit_types.Result[wit_types.Unit, string] {
	if settings != "{}" {
		return wit_types.Err[wit_types.Unit]("settings: this rule has none")
	}
	return wit_types.Ok[wit_types.Unit, string](wit_types.Unit{})
}

func Score(completions []Completion, corpus CorpusSize) [][]Outcome {
	batch = completions
	outcomes := make([][]Outcome, len(batch))
	for i, completion := range batch {
		for _, sentence := range completion.Sentences {
			outcomes[i] = append(outcomes[i], judge(sentence, nil))
		}
	}
	return outcomes
}

func Resume(replies []Reply) [][]Outcome {
	var outcomes [][]Outcome
	for _, completion := range batch {
		if !asks(completion) {
			continue // settled
		}
		var judged []Outcome
		for _, sentence := range completion.Sentences {
			judged = append(judged, judge(sentence, &replies))
		}
		outcomes = append(outcomes, judged)
	}
	return outcomes
}

// judge asks where there are no replies yet, or takes the next one.
func judge(sentence Sentence, replies *[]Reply) Outcome {
	query, triplet, found := findQuery(sentence)
	if !found {
		return MakeOutcomeAbstain(wit_types.Some("no valid triplet"))
	}
	if replies == nil {
		return MakeOutcomeAsk([]Request{MakeRequestCount(query)})
	}
	count := (*replies)[0].Count().Occurrences
	*replies = (*replies)[1:]
	return MakeOutcomeScore(Verdict{
		Reward:  reward(count),
		Count:   count,
		Triplet: wit_types.Some(triplet),
		Note:    wit_types.None[string](),
		Credit:  wit_types.None[Credit](), // every token of the sentence
	})
}

func asks(completion Completion) bool {
	for _, sentence := range completion.Sentences {
		if _, _, found := findQuery(sentence); found {
			return true
		}
	}
	return false
}

// findQuery makes a query of the first triplet with two names, and says which triplet that is.
func findQuery(sentence Sentence) (query Query, triplet uint32, found bool) {
	for i, triplet := range sentence.Triplets {
		var clauses [][]string
		for _, word := range strings.Fields(triplet.Head + " " + triplet.Tail) {
			if 'A' <= word[0] && word[0] <= 'Z' {
				clauses = append(clauses, []string{word})
			}
		}
		if len(clauses) >= 2 {
			return Query{AllOf: clauses, Enough: wit_types.Some[uint64](enough)}, uint32(i), true
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
	case count.Some() < enough:
		return 0
	}
	return 0.1
}
