// First, in C, from corver.wit alone: a reward for the number of times that the names of the sentence's first fact occur
// together in the corpus. The Makefile builds it. A name is a capitalised word; the rule has no settings.
//
// The rule owns its arguments and never frees them: an instance scores one batch. Results must be allocated, because the
// bindings free them.

#include "sentence_rule.h"

#include <stdlib.h>
#include <string.h>

typedef sentence_rule_string_t string_t;
typedef corver_reward_types_query_t query_t;
typedef corver_reward_types_completion_t completion_t;
typedef corver_reward_types_sentence_t sentence_t;
typedef corver_reward_types_sentence_outcome_t outcome_t;
typedef corver_reward_types_verdict_t verdict_t;
typedef corver_reward_types_request_t request_t;
typedef corver_reward_types_reply_t reply_t;
typedef exports_corver_reward_sentence_scoring_list_completion_t completions_t;
typedef exports_corver_reward_sentence_scoring_list_list_sentence_outcome_t outcomes_t;

static completions_t batch;
static uint64_t const LIMIT = 20; // larger counts have the same reward

void exports_corver_reward_sentence_scoring_describe(corver_reward_types_manifest_t *manifest) {
  sentence_rule_string_dup(&manifest->name, "first-c");
  sentence_rule_string_dup(&manifest->version, "0.1.0");
  sentence_rule_string_dup(&manifest->summary, "the count of the first fact with two names, through four tiers, in C");
  sentence_rule_string_dup(&manifest->settings_schema, "{\"type\": \"object\", \"additionalProperties\": false}");
  manifest->requires_ = (corver_reward_types_list_capability_t){NULL, 0}; // only counts
  manifest->reads_triplets = true;
  manifest->credit = CORVER_REWARD_TYPES_CREDIT_KIND_ALL_TOKENS;
}

bool exports_corver_reward_sentence_scoring_configure(string_t *settings, string_t *error) {
  if (settings->len == 2 && memcmp(settings->ptr, "{}", 2) == 0) return true;
  sentence_rule_string_dup(error, "settings: this rule has none");
  return false;
}

// Adds a clause of one word for each capitalised word of `text`.
static void add_names(query_t *query, string_t text) {
  for (size_t start = 0, end; start < text.len; start = end + 1) {
    for (end = start; end < text.len && text.ptr[end] != ' '; end++) {}
    if (text.ptr[start] < 'A' || text.ptr[start] > 'Z') continue;
    sentence_rule_list_list_string_t *clauses = &query->all_of;
    clauses->ptr = realloc(clauses->ptr, (clauses->len + 1) * sizeof *clauses->ptr);
    sentence_rule_list_string_t *clause = &clauses->ptr[clauses->len++];
    *clause = (sentence_rule_list_string_t){malloc(sizeof *clause->ptr), 1};
    sentence_rule_string_dup_n(clause->ptr, (char *)text.ptr + start, end - start);
  }
}

// Finds the first triplet with two names, and its query. Returns false if there is none.
static bool find_query(sentence_t const *sentence, query_t *query, uint32_t *triplet) {
  for (*triplet = 0; *triplet < sentence->triplets.len; ++*triplet) {
    *query = (query_t){.limit = {true, LIMIT}};
    add_names(query, sentence->triplets.ptr[*triplet].head);
    add_names(query, sentence->triplets.ptr[*triplet].tail);
    if (query->all_of.len >= 2) return true;
  }
  return false;
}

static float reward(sentence_rule_option_u64_t count) {
  if (!count.is_some) return 0;
  return count.val == 0 ? -0.3f : count.val < 5 ? -0.1f : count.val < LIMIT ? 0 : 0.1f;
}

// Scores a sentence with the next reply; without replies, it is pending.
static outcome_t score_sentence(sentence_t const *sentence, reply_t const **replies) {
  query_t query;
  uint32_t triplet;
  outcome_t outcome = {0};
  if (!find_query(sentence, &query, &triplet)) {
    outcome.tag = CORVER_REWARD_TYPES_SENTENCE_OUTCOME_ABSTAIN;
    outcome.val.abstain.is_some = true;
    sentence_rule_string_dup(&outcome.val.abstain.val, "no valid triplet");
  } else if (replies) {
    sentence_rule_option_u64_t count = (*replies)++->val.count.occurrences;
    outcome.tag = CORVER_REWARD_TYPES_SENTENCE_OUTCOME_DONE;
    outcome.val.done = (verdict_t){.reward = reward(count), .count = count, .triplet = {true, triplet}};
  } else {
    request_t *request = malloc(sizeof *request);
    *request = (request_t){.tag = CORVER_REWARD_TYPES_REQUEST_COUNT, .val.count = query};
    outcome.tag = CORVER_REWARD_TYPES_SENTENCE_OUTCOME_PENDING;
    outcome.val.pending = (corver_reward_types_list_request_t){request, 1};
  }
  return outcome;
}

static bool has_query(completion_t const *completion) {
  query_t query;
  uint32_t triplet;
  for (size_t i = 0; i < completion->sentences.len; i++)
    if (find_query(&completion->sentences.ptr[i], &query, &triplet)) return true;
  return false;
}

static void score_batch(reply_t const **replies, outcomes_t *outcomes) {
  *outcomes = (outcomes_t){malloc(batch.len * sizeof *outcomes->ptr), 0};
  for (size_t i = 0; i < batch.len; i++) {
    completion_t const *completion = &batch.ptr[i];
    if (replies && !has_query(completion)) continue; // settled
    size_t len = completion->sentences.len;
    outcome_t *scored = malloc(len * sizeof *scored);
    for (size_t j = 0; j < len; j++) scored[j] = score_sentence(&completion->sentences.ptr[j], replies);
    outcomes->ptr[outcomes->len++] = (exports_corver_reward_sentence_scoring_list_sentence_outcome_t){scored, len};
  }
}

void exports_corver_reward_sentence_scoring_score(completions_t *completions, corver_reward_types_corpus_info_t *corpus,
                                                  outcomes_t *outcomes) {
  batch = *completions;
  score_batch(NULL, outcomes);
}

void exports_corver_reward_sentence_scoring_resume(exports_corver_reward_sentence_scoring_list_reply_t *replies,
                                                   outcomes_t *outcomes) {
  reply_t const *next = replies->ptr;
  score_batch(&next, outcomes);
}
