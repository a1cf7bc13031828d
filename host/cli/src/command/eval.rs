//! `corver-host eval`: a question set, answered and graded.

use std::ops::ControlFlow;

use anyhow::{Context, Result, ensure};
use corver_core::{Graders, Scorers, Trainee};
use corver_study::eval::evaluate;

use crate::args::EvalArgs;
use crate::config::Config;
use crate::output;
use crate::parts::{self, Loader};
use crate::settings::Settings;

pub fn run(args: &EvalArgs, json: bool) -> Result<()> {
    let mut config = Config::resolve(Settings::of_eval(args)?)?;
    parts::find_device(config.device)?;
    parts::choose_threads(&mut config)?;
    let questions = parts::eval_questions(&config)?;
    ensure!(!questions.is_empty(), "there are no questions: set `question.eval`, or give a file with --questions");

    let mut rules = Loader::new(&config)?.sentence_rules()?;
    let mut graders = Graders::default();
    let (_, mut counter) = parts::corpus(&config)?;
    let (_, mut extractor) = parts::extractor(&config)?;
    let mut policy = parts::load_policy(&config, &parts::model(&config)?, args.adapter.as_deref())?;
    let mut prompt = config.eval.system_prompt.clone();
    if args.adapter.is_some() {
        prompt.push_str(&config.eval.trained_suffix);
    }
    policy.set_system_prompt(&prompt);

    let mut scorers = Scorers {
        extractor: extractor.as_mut(),
        counter: counter.as_mut(),
        sentence_scorer: &mut rules,
        graders: &mut graders,
    };
    let bar = output::progress(questions.len() as u64, "answering");
    let mut show = output::decoding(&bar);
    policy.set_watch(move |decoding| {
        show(decoding);
        ControlFlow::Continue(())
    });
    let mut progress = |done: usize| bar.set_position(done as u64);
    let (evaluation, answers) = evaluate(
        &mut policy,
        &mut scorers,
        &questions,
        &config.eval.answers,
        config.reward.compatibility,
        &mut progress,
    )?;
    bar.finish_and_clear();
    if let Some(out) = &args.out {
        let lines: Vec<String> = answers.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        std::fs::write(out, lines.join("\n") + "\n").with_context(|| format!("cannot write {}", out.display()))?;
    }
    if json {
        return output::json(&evaluation);
    }
    let percent = |value: f64| format!("{:.1} %", 100.0 * value);
    output::table(
        ["", "all questions"],
        [
            ["correct".to_owned(), percent(evaluation.accuracy)],
            ["incorrect".to_owned(), percent(evaluation.grades.rate(evaluation.grades.incorrect))],
            ["refused".to_owned(), percent(evaluation.refusal_rate)],
            ["cut off".to_owned(), percent(evaluation.cut_off_rate)],
            ["no answer".to_owned(), percent(evaluation.unformatted_rate)],
            ["F1".to_owned(), percent(evaluation.f1)],
            ["keeps the format".to_owned(), percent(evaluation.format_rate)],
            ["supported sentences".to_owned(), evaluation.supported_rate.map_or("–".to_owned(), percent)],
            ["mean length".to_owned(), format!("{:.1} tokens", evaluation.mean_length)],
        ],
    );
    Ok(())
}
