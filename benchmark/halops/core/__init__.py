"""What all scenarios share: metrics, timing, reference checks, reports, the course of a case."""
