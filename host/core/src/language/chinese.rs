//! Word lists of Chinese, in both scripts. Chinese has no articles, no capitals and no full stops in
//! abbreviations.

use super::LanguageWords;

pub(super) const WORDS: LanguageWords = LanguageWords {
    articles: &[],
    pronouns: &[
        "他", "他们", "他們", "她", "她们", "她們", "它", "它们", "它們", "其", "我", "我们",
        "我們", "你", "您", "自己", "这", "這", "那", "此", "该", "該", "这里", "這裡", "那里",
        "那裡", "这个", "這個", "那个", "那個", "前者", "后者", "後者",
    ],
    function_words: &[
        "和", "与", "與", "及", "或", "的", "在", "于", "於", "是", "有", "为", "為", "了", "也",
        "就", "都", "而", "但", "但是", "因为", "因為", "所以", "如果", "虽然", "雖然", "谁", "誰",
        "什么", "什麼", "哪", "哪个", "哪個", "哪里", "哪裡", "何", "何时", "何時", "怎么", "怎麼",
        "多少", "几", "幾", "吗", "嗎", "呢",
    ],
    never_last: &[],
    perhaps_last: &[],
    elided: &[],
    particles: "",
    elided_particles: "",
    title: "",
    refusals: &[
        "不知道",
        "我不知道",
        "不清楚",
        "我不清楚",
        "不晓得",
        "不曉得",
        "无法回答",
        "無法回答",
    ],
};
