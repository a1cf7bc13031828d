//! `corver-host eval`: a question set, answered and graded.

use anyhow::Result;

use crate::args::EvalArgs;

#[cfg(not(feature = "torch"))]
pub fn run(_: &EvalArgs, _: bool) -> Result<()> {
    anyhow::bail!("this corver-host was built without libtorch and cannot sample; build it with the feature `torch`")
}

#[cfg(feature = "torch")]
pub fn run(args: &EvalArgs, json: bool) -> Result<()> {
    use anyhow::Context;
    use corver_core::{Graders, Scorers};
    use corver_study::{Trainee, evaluate};

    use crate::rules::Loader;
    use crate::{output, parts};

    let config = parts::configuration(&args.config)?;
    let source = args.questions.as_ref().map_or(config.question.eval.clone(), |path| path.display().to_string());
    let mut questions = parts::questions(&source, "question.eval", || corver_demo::demo_questions().1)?;
    questions.truncate(args.limit.unwrap_or(usize::MAX));

    let mut rules = Loader::new(&config)?.sentence_rules()?;
    let mut graders = Graders::default();
    let (_, mut counter) = parts::corpus(&config.corpus)?;
    let (_, mut extractor) = parts::extractor(&config)?;
    let mut policy = parts::policy(&config, &parts::model(&config)?, args.adapter.as_deref())?;
    let mut prompt = config.eval.system_prompt.clone();
    if args.adapter.is_some() {
        prompt.push_str(&config.eval.trained_suffix);
    }
    Trainee::set_system_prompt(&mut policy, &prompt);

    let mut scorers =
        Scorers { extractor: extractor.as_mut(), counter: &mut counter, rules: &mut rules, graders: &mut graders };
    let bar = output::progress(questions.len() as u64, "answering");
    let mut progress = |done: usize| bar.set_position(done as u64);
    let (evaluation, answers) =
        evaluate(&mut policy, &mut scorers, &questions, &config.eval.answers, config.reward.reading, &mut progress)?;
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
            ["not attempted".to_owned(), percent(evaluation.refusal_rate)],
            ["F1".to_owned(), percent(evaluation.f1)],
            ["keeps the format".to_owned(), percent(evaluation.format_rate)],
            ["supported sentences".to_owned(), evaluation.supported_rate.map_or("–".to_owned(), percent)],
            ["mean length".to_owned(), format!("{:.1} tokens", evaluation.mean_length)],
        ],
    );
    Ok(())
}
