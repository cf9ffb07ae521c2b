module tenure/tools/crontable

go 1.24

require github.com/robfig/cron/v3 v3.0.1
