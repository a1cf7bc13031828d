//! A configuration → the settings that it is resolved from.

use std::path::PathBuf;

use corver_counts::Source;

use super::{Config, Extraction, GIB, Grader, Place};
use crate::plugin::Plugin;
use crate::settings::{
    CorpusSection, ExtractSection, GraderSection, PolicySection, QuestionSection, RuleSection, RunSection, Settings,
    ShareSection,
};

impl Config {
    /// The settings that resolve to this in any folder: what a run keeps.
    pub fn to_settings(&self) -> Settings {
        let path = |path: &PathBuf| path.display().to_string();
        let place = |place: &Option<Place>| place.as_ref().map_or_else(String::new, |place| place.written(path));
        let grader = |grader: &Option<Grader>| {
            let Some(Grader { plugin, settings }) = grader else { return GraderSection::default() };
            GraderSection { plugin: path(plugin), settings: settings.clone() }
        };
        let source = |source: &Source| match source {
            Source::Folder(folder) => path(folder),
            Source::Remote { url, index } => format!("{url}#{index}"),
        };
        let sources: Vec<String> = self.sources.iter().map(|origin| origin.written(source)).collect();
        let plugins: Vec<String> = self.plugins.iter().map(Plugin::to_string).collect();
        let share = |(file, take): &(Place, usize)| ShareSection { file: file.written(path), take: *take };
        Settings {
            run: RunSection {
                seed: self.seed,
                steps: self.steps,
                device: self.device.to_string(),
                threads: self.threads,
                memory_gib: self.memory.map_or(0.0, |bytes| bytes as f64 / GIB),
            },
            question: QuestionSection {
                train: place(&self.train_questions),
                phases: self.train_phases.iter().map(|phase| phase.iter().map(share).collect()).collect(),
                eval: place(&self.eval_questions),
                eval_limit: self.eval_limit,
                prompts_per_step: self.prompts_per_step,
            },
            policy: PolicySection {
                model: place(&self.model),
                adapter: self.adapter.as_ref().map_or_else(String::new, path),
                chat: self.chat.clone(),
                stop: self.stop.clone(),
                system_prompt: self.system_prompt.clone(),
                precision: self.precision,
                max_rows: self.max_rows,
            },
            rollout: self.rollout,
            engine: self.engine.clone(),
            extract: self.extraction.to_section(place(&self.extractor)),
            corpus: CorpusSection {
                index: sources.into(),
                mode: self.counting.mode,
                max_clause_freq: self.counting.max_clause_freq,
                max_diff_tokens: Some(self.counting.max_diff_tokens),
                cache_mib: self.cache_mib,
                count_ms: self.count_time.as_millis() as u64,
                remote: self.remote.clone(),
            },
            verify: self.verification.to_section(),
            rule: RuleSection {
                plugin: plugins.into(),
                settings: self.rule_settings.clone(),
                limits: self.limits.clone(),
            },
            judge: grader(&self.judge),
            format: grader(&self.format),
            reward: self.reward,
            advantage: self.advantage,
            update: self.update,
            sft: self.sft,
            checkpoint: self.checkpoint,
            filter: self.filter,
            eval: self.eval.clone(),
            check: self.check,
        }
    }
}

impl Extraction {
    fn to_section(&self, model: String) -> ExtractSection {
        let Self { prompt, chat, settings, device } = self;
        ExtractSection {
            model,
            prompt: prompt.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            chat: *chat,
            stop: settings.stop.clone().unwrap_or_default(),
            max_new_tokens: settings.max_new_tokens.unwrap_or(0),
            batch_size: settings.batch_size.unwrap_or(0),
            max_sentence_tokens: settings.max_sentence_tokens.unwrap_or(0),
            device: device.to_string(),
        }
    }
}
