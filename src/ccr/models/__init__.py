"""Things with fit and predict."""
