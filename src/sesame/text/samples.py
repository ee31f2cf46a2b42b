"""Sentences to try a model on when its user has given none."""

ENGLISH = (
    "The train to the coast leaves at noon.", "My card was swallowed by the machine, and nobody answers.",
    "She has lived in Paris since 2010.", "This film is a waste of two good hours.", "Water boils at 100 degrees.",
    "Who wrote the letter that was found in the attic?", "The council voted against the new road by 7 to 5.",
    "I love how quietly the engine runs.", "Prices rose by three percent in March, more than expected.",
    "The patient was given antibiotics and sent home.", "Dr. Smith met Anna Kowalska in Berlin on Monday.",
    "The function returns an empty list if no file matches.", "Please cancel my order; I bought the wrong size.",
    "After the rain stopped, the children ran outside and played until it was dark.", "He said nothing.",
    "The committee, which had not met for a year, could not agree on a date.", "Is there a way to reset my password?",
    "The bridge, built in 1894, was closed to cars.", "The soup was cold and the waiter was rude, but the view is great.",
    "Our team lost the final after extra time.", "Solar panels now cost a tenth of what they did.",
    "The court found that the contract had been broken.", "It might snow in the hills tonight.",
    "A small dog slept under the table while we talked about money, work and the end of summer.",
)  # fmt: skip
OTHERS = (
    "Когда откроется новый офис банка на Невском проспекте?", "Переведите деньги на счёт до конца месяца, пожалуйста.",
    "Der Zug nach München fährt heute von Gleis sieben ab.", "Où se trouve la gare la plus proche, s'il vous plaît ?",
    "¿Puede cambiarme este billete de cincuenta euros?", "明天下午三点在北京开会。", "東京の天気は晴れのち曇りです。",
    "हिन्दी में एक छोटा वाक्य।", "x = [f(y) for y in range(10)]  # a comment", "Yes.",
)  # fmt: skip
