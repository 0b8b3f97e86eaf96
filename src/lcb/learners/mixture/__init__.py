"""One mixture of linear classes, with a new class always possible: seats of users, refits, predictions."""
